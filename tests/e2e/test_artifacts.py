"""A job leaves files, and `torchyard cp` fetches them."""

import json
import os
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.e2e.service import Service
from tests.torchyard.cli.invocation import environment, run_in_process
from torchyard.contract.errors import NotFound
from torchyard.contract.jobs.views import JobView
from torchyard.contract.states import JobState
from torchyard.run.images import picture_bytes

PICTURE = picture_bytes([[0, 255, 7]])
LEAVES = """
import os, pathlib
folder = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"], "artifacts")
(folder / "plots" / "deep").mkdir(parents=True)
(folder / "plots" / "loss.png").write_bytes(bytes(range(256)) * 5000)
(folder / "plots" / "deep" / "50%2F #1?.txt").write_text("odd")
(folder / "empty").touch()
import torchyard
run = torchyard.init()
run.log_image("val/a b", bytes.fromhex(os.environ["PICTURE"]), step=3, caption="wall")
run.log_text("said", ["one", "two"], step=4)
run.flush()
(folder / "stolen").symlink_to("/etc/passwd")
raise ValueError("the end")
"""


@pytest.fixture(scope="module")
def job(service: Service) -> JobView:
    """A job that failed, and left files."""
    return service.wait(
        service.submit_script("leaves", LEAVES, max_restarts=0, env={"PICTURE": PICTURE.hex()}).id, JobState.FAILED
    )


def cp(service: Service, *arguments: str, cwd: Path) -> CompletedProcess[str]:
    own = environment(service.server["url"], service.server["token"])
    return run_in_process(["cp", *arguments], own, cwd=cwd)


def test_what_a_failed_job_left_is_listed_and_one_message_names_the_rest(
    service: Service, job: JobView, tmp_path: Path
) -> None:
    listed = cp(service, "leaves:", cwd=tmp_path)
    assert [line.split("  ")[0] for line in listed.stdout.splitlines()[1:]] == [
        "artifacts/empty",
        "artifacts/plots/deep/50%2F #1?.txt",
        "artifacts/plots/loss.png",
    ]
    found = json.loads(cp(service, f"{job.id}:", "--json", cwd=tmp_path).stdout)
    assert {item["attempt"] for item in found["artifacts"]} == {1}
    messages = [event.data.get("text", "") for event in service.client.jobs.events(job.id)]
    assert [text for text in messages if "artifacts" in text] == [
        "1 of the files in artifacts is not stored: stolen (a link)"
    ]


@pytest.mark.usefixtures("job")
def test_a_file_and_a_folder_are_copied_as_cp_does(service: Service, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    content = bytes(range(256)) * 5000
    for dest, path in ((".", "loss.png"), ("mine.png", "mine.png"), ("there", "there/loss.png")):
        done = cp(service, "leaves:artifacts/plots/loss.png", dest, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, f"{Path(path)}\n"), done.stderr
        assert (tmp_path / path).read_bytes() == content
    for dest, base in (("there", "there/plots"), ("new", "new")):
        done = cp(service, "leaves:artifacts/plots", dest, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / base / "deep" / "50%2F #1?.txt").read_text() == "odd"
        assert (tmp_path / base / "loss.png").read_bytes() == content
    assert cp(service, "leaves:artifacts", "all", cwd=tmp_path).returncode == 0
    assert (tmp_path / "all" / "empty").read_bytes() == b""


@pytest.mark.usefixtures("job")
def test_a_second_copy_writes_only_what_differs(service: Service, tmp_path: Path) -> None:
    assert cp(service, "leaves:artifacts", "all", cwd=tmp_path).returncode == 0
    kept, broken = tmp_path / "all" / "plots" / "loss.png", tmp_path / "all" / "empty"
    os.utime(kept, (1, 1))
    broken.write_text("not empty")
    assert cp(service, "leaves:artifacts/", "all/../all/.", cwd=tmp_path).returncode == 0
    assert (tmp_path / "all" / "artifacts" / "empty").exists()
    (tmp_path / "parent").mkdir()
    (tmp_path / "all").rename(tmp_path / "parent" / "artifacts")
    assert cp(service, "leaves:artifacts", "parent", cwd=tmp_path).returncode == 0
    assert (tmp_path / "parent" / "artifacts" / "empty").read_bytes() == b""
    assert (tmp_path / "parent" / "artifacts" / "plots" / "loss.png").stat().st_mtime == 1


@pytest.mark.usefixtures("job")
def test_nothing_is_written_behind_a_link_out_of_the_destination(service: Service, tmp_path: Path) -> None:
    outside, into = tmp_path / "outside", tmp_path / "into"
    outside.mkdir()
    into.mkdir()
    (into / "plots").symlink_to(outside)
    done = cp(service, "leaves:artifacts/plots", "into", cwd=tmp_path)
    assert done.returncode == 1
    assert "outside into, behind a link" in done.stderr
    assert [*outside.iterdir()] == []


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize(
    ("source", "status", "told"),
    [
        ("leaves:artifacts/none", 1, "has no artifact 'none'"),
        ("leaves:artifacts/..", 1, "has no artifact '..'"),
        ("leaves:checkpoints/best", 1, "has saved no checkpoint"),
        ("leaves:etc/passwd", 1, "has no stored file 'etc/passwd'"),
        ("leaves:checkpoints", 2, "give a checkpoint"),
        ("leaves", 2, "is not JOB:PATH"),
    ],
)
def test_what_cannot_be_copied_is_said(service: Service, tmp_path: Path, source: str, status: int, told: str) -> None:
    done = cp(service, source, ".", cwd=tmp_path)
    assert (done.returncode, [*tmp_path.iterdir()]) == (status, [])
    assert told in " ".join(done.stderr.split())


@pytest.mark.usefixtures("job")
def test_one_file_goes_to_stdout_and_a_folder_does_not(service: Service, tmp_path: Path) -> None:
    done = cp(service, "leaves:artifacts/plots/deep/50%2F #1?.txt", "-", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "odd")
    done = cp(service, "leaves:artifacts", "-", cwd=tmp_path)
    assert (done.returncode, done.stdout, [*tmp_path.iterdir()]) == (2, "", [])


def test_the_client_fetches_what_a_job_left(service: Service, job: JobView, tmp_path: Path) -> None:
    found = {item.path: item for item in service.client.get(job.id).artifacts("plots")}
    assert {path: item.size for path, item in found.items()} == {
        "plots/deep/50%2F #1?.txt": 3,
        "plots/loss.png": 256 * 5000,
    }
    path = found["plots/deep/50%2F #1?.txt"].download(tmp_path)
    assert (path, path.read_text()) == (tmp_path / "50%2F #1?.txt", "odd")


def test_the_client_fetches_what_a_job_shows(service: Service, job: JobView, tmp_path: Path) -> None:
    shown = service.client.get(job.id)
    items = list(shown.media())
    assert [(item.key, item.step, item.number, item.caption) for item in items] == [
        ("said", 4, 0, None),
        ("said", 4, 1, None),
        ("val/a b", 3, 0, "wall"),
    ]
    (picture,) = shown.media("val/a b")
    path = shown.download_picture(picture, to=tmp_path)
    assert (path, path.read_bytes()) == (tmp_path / f"{picture.id}-image.png", PICTURE)
    with pytest.raises(NotFound, match="has no truth"):
        shown.download_picture(picture, "truth")
    assert [event.data["key"] for event in service.client.jobs.events(job.id) if event.type == "media"] == [
        "val/a b",
        "said",
    ]
