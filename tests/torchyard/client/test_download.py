"""Downloads of checkpoints, by both clients."""

from collections.abc import Generator
from contextlib import contextmanager
import fcntl
from pathlib import Path
import resource

import pytest

from tests.torchyard.client.answers import DATA, JOB, SHA256, serve_checkpoint
from tests.torchyard.client.drivers import DRIVERS, Connect
from tests.torchyard.client.fake_server import TOKEN, Answer, FakeServer
from torchyard.client import Client
from torchyard.contract.errors import Conflict, NotFound, ServerError, ServerUnreachable

PART = f"mine.pt.{SHA256[:12]}.part"
REST = {"Content-Range": f"bytes 10-{len(DATA) - 1}/{len(DATA)}"}
CUT = {"Content-Length": str(len(DATA)), "Connection": "close"}


def test_download_verifies_the_file_and_takes_the_servers_name_for_it(
    server: FakeServer, client: Client, tmp_path: Path
) -> None:
    serve_checkpoint(server, DATA, {"Content-Disposition": 'attachment; filename="digits-epoch-3.pt"'})
    seen: list[tuple[int, int]] = []
    path = client.jobs.download(
        "job_1", to=tmp_path / "work", on_progress=lambda done, total: seen.append((done, total))
    )
    assert (path, path.read_bytes()) == (tmp_path / "work" / "digits-epoch-3.pt", DATA)
    assert seen[-1] == (len(DATA), len(DATA))
    assert [*path.parent.iterdir()] == [path]
    assert client.jobs.download("job_1", to=tmp_path / "mine.pt").read_bytes() == DATA


@pytest.mark.parametrize("sent", [DATA[:-1], DATA[:-1] + b"x"])
def test_bytes_that_differ_from_the_listed_ones_leave_no_file(server: FakeServer, client: Client, sent: bytes) -> None:
    serve_checkpoint(server, sent)
    with pytest.raises(ServerError, match="is listed as"):
        client.jobs.download("job_1")
    assert [*Path.cwd().iterdir()] == []


def test_a_download_that_failed_keeps_its_bytes_and_the_next_one_continues(
    server: FakeServer, connect: Connect
) -> None:
    serve_checkpoint(server, DATA[:10], CUT)
    with connect(server.url, TOKEN, patience=0.3) as client, pytest.raises(ServerUnreachable):
        client.jobs.download("job_1", to="mine.pt")
    [part] = Path.cwd().iterdir()
    assert (part.name, part.read_bytes()) == (PART, DATA[:10])
    serve_checkpoint(server, DATA[10:], REST, status=206)
    seen: list[int] = []
    with connect(server.url, TOKEN) as client:
        client.jobs.download("job_1", to="mine.pt", on_progress=lambda done, _: seen.append(done))
    last = server.requests[-1]
    assert (last.headers["Range"], last.headers["If-Range"]) == ("bytes=10-", f'"{SHA256}"')
    assert [path.read_bytes() for path in Path.cwd().iterdir()] == [DATA]
    assert seen[0] == 10


def test_a_connection_that_breaks_in_a_download_is_made_again(server: FakeServer, client: Client) -> None:
    serve_checkpoint(server, b"")
    server.on(f"{JOB}/checkpoints/ckpt_1/download", Answer(DATA[:10], 200, CUT), Answer(DATA[10:], 206, REST))
    assert client.jobs.download("job_1", to="mine.pt").read_bytes() == DATA


def test_kept_bytes_are_dropped_if_the_server_sends_the_whole_file(server: FakeServer, client: Client) -> None:
    Path(PART).write_bytes(b"other bytes")
    serve_checkpoint(server, DATA)
    assert client.jobs.download("job_1", to="mine.pt").read_bytes() == DATA


def test_wrong_kept_bytes_are_detected_and_removed(server: FakeServer, client: Client) -> None:
    Path(PART).write_bytes(b"other byte")
    serve_checkpoint(server, DATA[10:], REST, status=206)
    with pytest.raises(ServerError, match="is listed as"):
        client.jobs.download("job_1", to="mine.pt")
    assert [*Path.cwd().iterdir()] == []


def test_two_downloads_of_the_same_file_do_not_mix(server: FakeServer, client: Client) -> None:
    serve_checkpoint(server, DATA)
    with Path(PART).open("wb") as part:
        fcntl.flock(part, fcntl.LOCK_EX)
        with pytest.raises(Conflict, match="another download"):
            client.jobs.download("job_1", to="mine.pt")
    assert client.jobs.download("job_1", to="mine.pt").read_bytes() == DATA


@pytest.mark.parametrize(
    "driver", [pytest.param(name, marks=[pytest.mark.thorough] if name == "asyncio" else []) for name in DRIVERS]
)
def test_a_write_that_fails_reports_how_much_is_kept(server: FakeServer, driver: str) -> None:
    serve_checkpoint(server, DATA)
    kept = pytest.raises(OSError, match=f"5000 of {len(DATA)} bytes are kept")
    with DRIVERS[driver](server.url, TOKEN) as client, _files_end_at(5000), kept:
        client.jobs.download("job_1", to="mine.pt")
    [part] = Path.cwd().iterdir()
    assert part.read_bytes() == DATA[:5000]


@contextmanager
def _files_end_at(size: int) -> Generator[None]:
    """Has the writes of this process fail behind so many bytes of a file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_download_does_not_begin_if_the_disk_has_too_little_free_space(server: FakeServer, client: Client) -> None:
    serve_checkpoint(server, DATA)
    listed = client.jobs.checkpoint("job_1").model_dump(mode="json")
    server.on(f"{JOB}/checkpoints/best", {**listed, "size": 2**60})
    with pytest.raises(OSError, match=f"{2**60} bytes are missing, but the disk has only"):
        client.jobs.download("job_1", to="mine.pt")
    assert [*Path.cwd().iterdir()] == []
    assert not any(request.path.endswith("/download") for request in server.requests)


def test_any_file_of_a_checkpoint_can_be_downloaded(server: FakeServer, client: Client) -> None:
    serve_checkpoint(server, DATA)
    server.on(f"{JOB}/checkpoints/ckpt_1/files/state.pt", Answer(DATA))
    assert client.jobs.download("job_1", file="state.pt", to="mine.pt").read_bytes() == DATA
    for to in ("mine.pt", "."):
        with pytest.raises(NotFound, match=r"it has state\.pt"):
            client.jobs.download("job_1", file="other", to=to)


def test_a_server_cannot_choose_the_folder_of_a_download(server: FakeServer, client: Client, tmp_path: Path) -> None:
    serve_checkpoint(server, DATA, {"Content-Disposition": 'attachment; filename="../evil.pt"'})
    assert client.jobs.download("job_1", to=tmp_path) == tmp_path / "ckpt_1.pt"
