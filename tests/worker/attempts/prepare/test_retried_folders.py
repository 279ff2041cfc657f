"""What a retry finds in its working folder, and the next attempt in a pool after a silence."""

from collections.abc import Generator
from dataclasses import replace
import os
from pathlib import Path

import pytest

from store.attempts.facts import EarlierAttempt
from store.db.database import Database
from tests.worker.attempt import wait_for
from tests.worker.attempts.hosts import CODE, Hosts
from tests.worker.bundles.tars import Tree, read_tree
from tests.worker.eventfiles import NAME, scalars, write
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.states import EndReason, JobState
from torchyard.host import failpoints
from worker.attempts import intents
from worker.attempts.capture import capturing
from worker.attempts.prepare import workfolder
from worker.attempts.prepare.workfolder import WorkFolder
from worker.bundles.foldercopy import TooLong
from worker.host import rundirs, workfolders
from worker.host.untrusted import remove_inside


@pytest.fixture(autouse=True)
def look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capturing, "LOOK_SHARE", 0)
    monkeypatch.setattr(capturing, "_AGAIN_S", 0.0)
    monkeypatch.setattr(capturing.Capturing.__init__, "__kwdefaults__", {"mask": None, "look_s": 0.0})


@pytest.fixture
def hosts(tmp_path: Path, database: Database) -> Generator[Hosts]:
    made = Hosts.with_job(tmp_path, database, config={"checkpoints": ["out/*.pt"]}, visibility="team", max_restarts=0)
    yield made
    made.close()
    for name in ("a", "b"):
        remove_inside(tmp_path / name, "unpacked")


STORED: Tree = {
    **CODE,
    "out/a.pt": (b"state", False),
    "cache/x": (b"cached", False),
    f"runs/{NAME}": (scalars("loss", {1: 0.5}), False),
}
"""What is stored of the job that `run_once` runs: its link is not."""


def run_once(hosts: Hosts, end: EndReason = EndReason.USER_ERROR) -> RunDir:
    """Runs an attempt that stores a checkpoint, and leaves files besides."""
    hosts.start()
    hosts.write("out/a.pt", b"state")
    hosts.write("cache/x", b"cached")
    (hosts.last.run.work / "link").symlink_to("cache")
    write(hosts.last.run.work / "runs" / NAME, scalars("loss", {1: 0.5}))
    wait_for(lambda: hosts.last.row.checkpoints, "the checkpoint")
    hosts.end(end)
    assert JobState(hosts.store.job(hosts.job_id).state).terminal
    return hosts.last.run


def test_a_retry_of_the_owner_begins_in_a_copy(hosts: Hosts) -> None:
    before, old = run_once(hosts), hosts.job_id
    hosts.retry()
    hosts.start()
    work = hosts.last.run.work
    assert (work / "cache" / "x").read_bytes() == b"cached"
    assert os.readlink(work / "link") == "cache"  # noqa: PTH115 as text
    assert f"begins in a copy of the folder of job {old}" in hosts.messages()
    (work / "cache" / "x").write_bytes(b"changed")
    assert (before.work / "cache" / "x").read_bytes() == b"cached"
    hosts.end(EndReason.COMPLETED)
    assert hosts.last.row.checkpoints == 0, "what the other job has captured is not captured again"
    assert hosts.store.series(hosts.job_id) == {}, "nor are its points read again"


def test_a_retry_of_a_job_that_succeeded_has_all_of_its_code(hosts: Hosts) -> None:
    run_once(hosts, EndReason.COMPLETED)
    hosts.retry()
    hosts.start()
    found = read_tree(hosts.last.run.work / "lib")
    assert found == {"a.py": CODE["lib/a.py"]}
    assert (hosts.last.run.work / "cache" / "x").read_bytes() == b"cached"


@pytest.mark.parametrize(
    ("host", "owner"),
    [
        pytest.param("b", "ada", id="on another host", marks=pytest.mark.thorough),
        pytest.param("a", "bob", id="of somebody else"),
    ],
)
def test_elsewhere_a_retry_finds_what_is_stored(hosts: Hosts, host: str, owner: str) -> None:
    run_once(hosts)
    old = hosts.job_id
    hosts.retry(owner=owner)
    hosts.start(host)
    assert read_tree(hosts.last.run.work) == STORED
    assert not (hosts.last.run.work / "link").is_symlink()
    (told,) = [text for text in hosts.messages() if text.startswith("restored 1 checkpoint and 2 files")]
    assert told.endswith(f"of job {old}")


def test_a_fresh_retry_finds_the_code_alone(hosts: Hosts) -> None:
    run_once(hosts)
    hosts.retry(fresh=True)
    hosts.start()
    assert read_tree(hosts.last.run.work) == CODE
    assert "TORCHYARD_RESUME_FROM" not in hosts.last.engine.attempts[hosts.last.key].plan.env
    (told,) = [text for text in hosts.messages() if "from the beginning" in text]
    assert told.endswith("with its code alone")


def test_a_retry_from_a_checkpoint_finds_that_one(hosts: Hosts) -> None:
    run_once(hosts)
    hosts.retry(ref="latest")
    hosts.start()
    assert read_tree(hosts.last.run.work) == {**CODE, "out/a.pt": (b"state", False)}


def test_an_older_folder_of_the_retried_job_does_not_count(hosts: Hosts) -> None:
    before = run_once(hosts)
    record = workfolders.record_of(before)
    assert record is not None
    workfolders.use(before, replace(record, claimed_at=record.claimed_at + 1))
    hosts.retry()
    hosts.start()
    assert read_tree(hosts.last.run.work) == STORED


@pytest.mark.parametrize(
    "obstacle",
    [
        "size",
        pytest.param("killed", marks=pytest.mark.thorough),
        pytest.param("long", marks=pytest.mark.thorough),
    ],
)
def test_a_folder_that_cannot_be_copied_gives_way_to_what_is_stored(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, obstacle: str
) -> None:
    run_once(hosts)
    old = hosts.job_id
    hosts.retry()
    if obstacle == "size":
        sizes, size = [1 << 62], rundirs.size

        def measured(folder: Path, *, unlock: bool) -> int:
            return sizes.pop() if sizes else size(folder, unlock=unlock)

        monkeypatch.setattr(rundirs, "size", measured)
    elif obstacle == "killed":
        monkeypatch.setenv(failpoints.VARIABLE, "folder.copy=kill@2")
    else:

        def too_long(*_: object, **__: object) -> None:
            raise TooLong("it takes more than 60 minutes")

        monkeypatch.setattr(workfolder, "copy_folder", too_long)
    hosts.start()
    assert read_tree(hosts.last.run.work) == STORED
    (told,) = [text for text in hosts.messages() if "cannot be copied" in text]
    assert "restored 1 checkpoint and 2 files" in told
    assert told.endswith(f"of job {old}")


def test_a_cancel_ends_the_copy(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    run_once(hosts)
    hosts.retry()
    monkeypatch.setenv(failpoints.VARIABLE, "folder.copy=hang")
    monkeypatch.setattr(intents, "READ_EVERY_S", 0.1)
    hosts.claim().start_runner()
    job = hosts.last.run.root.parent
    wait_for(lambda: list(job.glob(".work.*")), "the copy")
    hosts.last.request_stop()
    assert hosts.last.wait_for_end().state == JobState.CANCELLED
    assert list(job.glob(".work.*")) == []


def test_after_a_silence_in_a_pool_the_next_attempt_gets_a_copy(hosts: Hosts, tmp_path: Path) -> None:
    hosts.start()
    hosts.write("state", b"1")
    first = hosts.last.run
    (first.artifacts / "plot.png").write_bytes(b"plot")
    record = workfolders.record_of(first)
    assert record is not None
    opened = (first.work / "state").open("r+b", buffering=0)
    tree = hosts.last.engine.attempts[hosts.last.key].plan.source
    later = RunDir(first.root.with_name("2"))
    later.create()
    earlier = [EarlierAttempt(number=1, started_at=record.claimed_at, ran=True, offsets={})]
    blobs = hosts.last.blobs
    folder = WorkFolder(run=later, number=2, claimed_at=7, earlier=earlier, in_pool=True, blobs=blobs)
    assert folder.take(tree) == "continues in a copy of the folder of attempt 1"
    with opened:
        opened.write(b"late")
    assert (later.work / "state").read_bytes() == b"1"
    assert list(later.artifacts.iterdir()) == []
    assert workfolders.record_of(later) == replace(
        record, attempt=2, claimed_at=7, message="continues in a copy of the folder of attempt 1"
    )


def test_after_a_report_in_a_pool_the_next_attempt_gets_the_folder_itself(hosts: Hosts) -> None:
    hosts.start()
    inode = hosts.write("state", b"1").stat().st_ino
    first = hosts.last.run
    first.exit.write_text("{}")
    record = workfolders.record_of(first)
    assert record is not None
    later = RunDir(first.root.with_name("2"))
    later.create()
    earlier = [EarlierAttempt(number=1, started_at=record.claimed_at, ran=True, offsets={})]
    blobs = hosts.last.blobs
    folder = WorkFolder(run=later, number=2, claimed_at=7, earlier=earlier, in_pool=True, blobs=blobs)
    tree = hosts.last.engine.attempts[hosts.last.key].plan.source
    assert folder.take(tree) == "continues in the folder of attempt 1"
    assert (later.work / "state").stat().st_ino == inode
