"""Downloads of checkpoints in several files, which become folders, by both clients."""

import fcntl
import os
from pathlib import Path

import pytest

from tests.archives import archive_of, digest_of
from tests.torchyard.client.answers import JOB, serve_folder
from tests.torchyard.client.drivers import Connect
from tests.torchyard.client.fake_server import TOKEN, Answer, FakeServer
from torchyard.client import Client
from torchyard.client.folder import PartFolder
from torchyard.contract.errors import Conflict, ServerError, ServerUnreachable

FILES = {
    "out/checkpoint-500/.metadata": b"m" * 700,
    "out/checkpoint-500/__0_0.distcp": bytes(range(256)) * 12,
    "out/checkpoint-500/empty": b"",
    "out/checkpoint-500/epoch=1 \u00e9.ckpt": b"e" * 512,
    "zero": b"",
}
WHOLE = archive_of(FILES)
PART = f"mine.{digest_of(FILES)[:12]}.part"


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def rest(start: int) -> Answer:
    return Answer(WHOLE[start:], 206, {"Content-Range": f"bytes {start}-{len(WHOLE) - 1}/{len(WHOLE)}"})


def cut(end: int) -> Answer:
    return Answer(WHOLE[:end], 200, {"Content-Length": str(len(WHOLE)), "Connection": "close"})


def test_a_checkpoint_of_several_files_becomes_a_folder(server: FakeServer, client: Client, tmp_path: Path) -> None:
    serve_folder(server, FILES)
    seen: list[tuple[int, int]] = []
    found = client.jobs.download(
        "job_1", to=tmp_path / "work", on_progress=lambda done, total: seen.append((done, total))
    )
    assert found == tmp_path / "work" / "mine-step-9"
    assert files_in(found) == FILES
    assert seen[-1] == (len(WHOLE), len(WHOLE))
    assert [*found.parent.iterdir()] == [found]
    assert files_in(client.jobs.download("job_1", to=tmp_path / "other")) == FILES
    with pytest.raises(Conflict, match="exists"):
        client.jobs.download("job_1", to=tmp_path / "work")


@pytest.mark.parametrize("kept", [1, 511, 512, 513, 1212, 1300, 1536, 2048, 3000, 5120, 5632, 8000, len(WHOLE) - 1])
def test_an_interrupted_download_goes_on_wherever_it_was_cut(server: FakeServer, connect: Connect, kept: int) -> None:
    serve_folder(server, FILES, cut(kept))
    with connect(server.url, TOKEN, patience=0.1) as client, pytest.raises(ServerUnreachable):
        client.jobs.download("job_1", to="mine")
    assert [path.name for path in Path.cwd().iterdir()] == [PART]
    with connect(server.url, TOKEN) as client:
        view = client.jobs.checkpoint("job_1")
        with PartFolder(Path("mine"), view.files, sha256=view.sha256, on_progress=None) as part:
            begins = part.size
        assert kept - 2048 < begins <= kept, "only a header is asked for again"
        serve_folder(server, FILES, rest(begins) if begins else Answer(WHOLE))
        client.jobs.download("job_1", to="mine")
    assert files_in(Path("mine")) == FILES
    assert [path.name for path in Path.cwd().iterdir()] == ["mine"]


def test_a_connection_that_breaks_in_a_download_is_made_again(server: FakeServer, client: Client) -> None:
    serve_folder(server, FILES, cut(900), rest(900))
    assert files_in(client.jobs.download("job_1", to="mine")) == FILES
    last = server.requests[-1]
    assert (last.headers["Range"], last.headers["If-Range"]) == ("bytes=900-", f'"{digest_of(FILES)}"')


def test_kept_files_are_written_anew_if_the_server_sends_the_whole(server: FakeServer, client: Client) -> None:
    (Path(PART) / "out/checkpoint-500").mkdir(parents=True)
    (Path(PART) / "out/checkpoint-500/.metadata").write_bytes(b"other")
    (Path(PART) / "zero").write_bytes(b"longer than it is")
    serve_folder(server, FILES)
    assert files_in(client.jobs.download("job_1", to="mine")) == FILES


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (WHOLE.replace(b"m" * 700, b"n" * 700), "arrived with the sha256"),
        (WHOLE.replace(b"checkpoint-500", b"checkpoint-501", 1), "are not what the list of its files says"),
        (
            WHOLE.replace(b"out/checkpoint-500/.m", b"../../../../../etc/.m", 1),
            "are not what the list of its files says",
        ),
        (WHOLE[:-1], "bytes have arrived"),
        (WHOLE + b"x", "sends more than"),
        (b"", "bytes have arrived"),
    ],
)
def test_bytes_that_differ_from_the_listed_ones_leave_no_folder(
    server: FakeServer, client: Client, sent: bytes, why: str
) -> None:
    serve_folder(server, FILES, Answer(sent))
    with pytest.raises(ServerError, match=why):
        client.jobs.download("job_1", to="mine")
    assert not Path("mine").exists()
    assert {path.name for path in Path.cwd().parent.iterdir()} == {Path.cwd().name}


@pytest.mark.parametrize(
    "path", ["../x", "/etc/x", "a/../../x", "a//b", "", "a\\b", "a\x1b[2J", "a/./b", "out/checkpoint-500"]
)
def test_a_list_with_a_path_that_leads_elsewhere_is_refused_before_anything_is_written(
    server: FakeServer, client: Client, path: str
) -> None:
    serve_folder(server, {**FILES, path: b"evil"})
    with pytest.raises(ServerError, match="nothing is written"):
        client.jobs.download("job_1", to="mine")
    assert [*Path.cwd().iterdir()] == []
    assert not any(request.path.endswith("/download") for request in server.requests)


def test_a_digest_that_is_not_that_of_the_list_is_refused(server: FakeServer, client: Client) -> None:
    serve_folder(server, FILES, sha256="0" * 64)
    with pytest.raises(ServerError, match="not that of its list of files"):
        client.jobs.download("job_1", to="mine")
    assert [*Path.cwd().iterdir()] == []


@pytest.mark.parametrize("name", ["out", "out/checkpoint-500", "out/checkpoint-500/.metadata", "."])
def test_no_link_is_followed(server: FakeServer, client: Client, tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    link = Path(PART) / name if name != "." else Path(PART)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(outside if name != "out/checkpoint-500/.metadata" else outside / "file")
    serve_folder(server, FILES)
    with pytest.raises(OSError, match=r"Not a directory|Too many levels|File exists"):
        client.jobs.download("job_1", to="mine")
    assert [*outside.iterdir()] == []


def test_two_downloads_into_the_same_folder_do_not_mix(server: FakeServer, client: Client) -> None:
    serve_folder(server, FILES)
    Path(PART).mkdir()
    (Path(PART) / "zero").touch()
    other = os.open(PART, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    with pytest.raises(Conflict, match="another download"):
        client.jobs.download("job_1", to="mine")
    os.close(other)
    assert files_in(client.jobs.download("job_1", to="mine")) == FILES


def test_one_file_of_a_folder_can_be_downloaded(server: FakeServer, client: Client) -> None:
    serve_folder(server, FILES)
    path = "out/checkpoint-500/epoch=1 \u00e9.ckpt"
    assert client.jobs.download("job_1", file=path, to="one").read_bytes() == FILES[path]
    assert server.requests[-1].path.endswith("/files/out/checkpoint-500/epoch%3D1%20%C3%A9.ckpt")


def test_a_folder_that_does_not_fit_the_disk_is_not_begun(server: FakeServer, client: Client) -> None:
    view = serve_folder(server, FILES)
    large = [{**file, "size": 2**60} for file in view["files"]]
    server.on(f"{JOB}/checkpoints/best", {**view, "files": large})
    with pytest.raises(OSError, match="bytes are missing, but the disk has only"):
        client.jobs.download("job_1", to="mine")
    assert [*Path.cwd().iterdir()] == []
