"""Mounts at paths of a working folder, from attempt to attempt: made anew, never kept, copied or counted."""

from collections.abc import Generator
import os
from pathlib import Path

import pytest

from store.db.database import Database
from store.output import artifacts
from tests.worker.attempts.hosts import CODE, Hosts
from tests.worker.bundles.tars import Tree, read_tree
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.states import EndReason, JobState
from worker.attempts.capture import capturing
from worker.host import rundirs, workfolders
from worker.host.untrusted import remove_inside

TREE: Tree = {**CODE, "data/mnist/readme.txt": (b"of the code", False)}


@pytest.fixture(autouse=True)
def look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capturing, "LOOK_SHARE", 0)
    monkeypatch.setattr(capturing, "_AGAIN_S", 0.0)
    monkeypatch.setattr(capturing.Capturing.__init__, "__kwdefaults__", {"mask": None, "look_s": 0.0})


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """What the host has: larger than all that a job keeps unasked."""
    folder = tmp_path / "allowed" / "mnist"
    folder.mkdir(parents=True)
    (folder / "big.bin").write_bytes(bytes(1 << 20))
    (folder / "a.pt").write_bytes(b"theirs")
    return folder


@pytest.fixture
def hosts(tmp_path: Path, database: Database, data: Path) -> Generator[Hosts]:
    made = Hosts(tmp_path, database, allowed=(data.parent,))
    config = {"mounts": {"./data/mnist": data.as_uri()}, "checkpoints": ["**/*.pt", "data/*"]}
    made.job_id = made.submit(config=config, tree=TREE, max_restarts=3, keep=["**"])
    yield made
    made.close()
    for name in ("a", "b"):
        remove_inside(tmp_path / name, "unpacked")


def mount_of(run: RunDir) -> Path:
    return run.work / "data" / "mnist"


def test_a_mount_takes_the_place_of_what_the_code_has_there_and_says_so(hosts: Hosts, data: Path) -> None:
    hosts.start()
    run = hosts.last.run
    assert read_tree(mount_of(run).resolve()) == read_tree(data)
    assert (run.work / "data" / "mnist.set-aside" / "readme.txt").read_bytes() == b"of the code"
    said = "data/mnist makes room for a mount, and is data/mnist.set-aside now"
    assert said in hosts.messages()


def test_the_next_attempt_makes_it_anew_and_sets_aside_what_the_job_has_put_there(
    hosts: Hosts, data: Path, tmp_path: Path
) -> None:
    hosts.start()
    hosts.end()
    hosts.start()
    assert hosts.messages().count("continues in the folder of attempt 1") == 1, "its own link is no news"
    outside = tmp_path / "outside"
    outside.mkdir()
    (hosts.last.run.work / "data").rename(hosts.last.run.work / "mine")
    (hosts.last.run.work / "data").symlink_to(outside)
    hosts.end()
    hosts.start()
    assert [*outside.iterdir()] == []
    assert read_tree(mount_of(hosts.last.run).resolve()) == read_tree(data)
    assert os.readlink(hosts.last.run.work / "data.set-aside") == str(outside)  # noqa: PTH115 as text
    assert any("data makes room for a mount" in text for text in hosts.messages())


def test_nothing_of_a_mount_is_captured_kept_counted_or_copied(hosts: Hosts, data: Path) -> None:
    hosts.start()
    run, old = hosts.last.run, hosts.job_id
    before = rundirs.size(run.work, unlock=False)
    assert before < 1 << 20
    hosts.write("own.txt", b"own")
    hosts.end(EndReason.CONFIG_ERROR)
    assert JobState(hosts.store.job(old).state).terminal
    assert hosts.last.row.checkpoints == 0
    kept = {item.path for item in hosts.store.read(lambda session: artifacts.read_room(session, old)).stored}
    assert "./own.txt" in kept
    assert not any(path.startswith("./data/mnist/") for path in kept)
    hosts.retry()
    hosts.start()
    copy = hosts.last.run
    record = workfolders.record_of(copy)
    assert record is not None
    assert record.mounts == {"./data/mnist": str(data)}
    assert mount_of(copy).is_symlink()
    assert not any("makes room" in text for text in hosts.messages())
    assert sorted(path.name for path in (copy.work / "data").iterdir()) == ["mnist", "mnist.set-aside"]


def test_a_folder_that_is_not_allowed_or_not_there_ends_the_job(hosts: Hosts, data: Path) -> None:
    data.rename(data.with_name("moved"))
    hosts.claim().start_runner()
    hosts.last.wait_for_end()
    error = hosts.store.job(hosts.job_id).error
    assert error is not None
    assert error["code"] == EndReason.DATA_ERROR
