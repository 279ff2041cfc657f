"""The working folder belongs to the job: an attempt finds what the one before has left, and nothing older."""

from collections.abc import Generator
import io
import os
from pathlib import Path
from typing import Any
import zipfile

import pytest

from store.db.database import Database
from store.output import checkpoints
from tests.worker.attempt import wait_for
from tests.worker.attempts.hosts import CODE, Hosts
from tests.worker.bundles.tars import read_tree
from tests.worker.eventfiles import NAME, scalars, write
from torchyard.contract.states import EndReason, JobState
from torchyard.host.recordfiles import write_record
from worker.attempts.capture import capturing
from worker.attempts.prepare import setup
from worker.host import workfolders
from worker.host.untrusted import remove_inside
from worker.host.workfolders import WorkRecord


def zipped(content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("data", content)
    return file.getvalue()


@pytest.fixture
def config() -> dict[str, Any]:
    """What a test changes of the script's configuration."""
    return {}


@pytest.fixture
def hosts(tmp_path: Path, database: Database, config: dict[str, Any]) -> Generator[Hosts]:
    made = Hosts.with_job(tmp_path, database, config=config, max_restarts=20)
    yield made
    made.close()
    for name in ("a", "b"):
        remove_inside(tmp_path / name, "unpacked")


@pytest.mark.parametrize(
    "end",
    [
        EndReason.USER_ERROR,
        EndReason.PAUSED,
        pytest.param(EndReason.KILLED, marks=pytest.mark.thorough),
        pytest.param(EndReason.HANG, marks=pytest.mark.thorough),
        pytest.param(EndReason.PREEMPTED, marks=pytest.mark.thorough),
    ],
)
def test_the_next_attempt_finds_the_folder_as_it_was_left(hosts: Hosts, end: EndReason) -> None:
    hosts.start()
    hosts.write("out/last.pt", b"state")
    hosts.write("train.py", b"changed")
    (hosts.last.run.work / "lib" / "a.py").unlink()
    (hosts.last.run.work / "link").symlink_to("out/last.pt")
    (hosts.last.run.artifacts / "plot.png").write_bytes(b"plot")
    hosts.last.run.work.chmod(0o500)
    hosts.end(end)
    plan = hosts.start().plan
    work = hosts.last.run.work
    assert plan.cwd == work
    assert (work / "train.py").read_bytes() == b"changed"
    assert (work / "out" / "last.pt").read_bytes() == b"state"
    assert os.readlink(work / "link") == "out/last.pt"  # noqa: PTH115 as text
    assert not (work / "lib" / "a.py").exists()
    assert (hosts.last.run.artifacts / "plot.png").read_bytes() == b"plot"
    assert "continues in the folder of attempt 1" in hosts.messages()
    assert plan.source is not None
    assert read_tree(plan.source) == CODE


def test_a_worker_that_restarts_changes_nothing(hosts: Hosts) -> None:
    hosts.start()
    hosts.write("state", b"1")
    hosts.last.detach()
    hosts.last.start_runner()
    hosts.end()
    hosts.start()
    assert (hosts.last.run.work / "state").read_bytes() == b"1"


def test_an_older_folder_is_set_aside_when_another_host_had_the_job_since(hosts: Hosts) -> None:
    hosts.start("a")
    hosts.write("state", b"from a")
    hosts.end()
    hosts.start("b")
    assert read_tree(hosts.last.run.work) == {**CODE, "state": (b"from a", False)}
    hosts.write("state", b"from b")
    hosts.end()
    hosts.start("a")
    assert read_tree(hosts.last.run.work) == {**CODE, "state": (b"from b", False)}
    assert (hosts.last.run.root.parent / ".stale.work" / "state").read_bytes() == b"from a"
    assert [text for text in hosts.messages() if "continues" in text] == []


def test_an_attempt_that_started_no_process_does_not_count(hosts: Hosts) -> None:
    hosts.start("a")
    hosts.write("state", b"1")
    (hosts.last.run.artifacts / "plot.png").write_bytes(b"plot")
    hosts.end()
    for host in ("a", "b"):
        refused = hosts.claim(host)
        refused.engine.refusals.append(OSError("no process"))
        refused.start_runner()
        refused.wait_for_end()
        assert hosts.store.job(hosts.job_id).state == JobState.QUEUED
    hosts.start("a")
    assert (hosts.last.run.work / "state").read_bytes() == b"1"
    assert (hosts.last.run.artifacts / "plot.png").read_bytes() == b"plot"
    assert hosts.messages().count("continues in the folder of attempt 1") == 2


def test_a_folder_of_an_attempt_that_a_restored_database_does_not_know_is_set_aside(hosts: Hosts) -> None:
    hosts.start()
    hosts.write("state", b"1")
    hosts.end()
    record = workfolders.record_of(hosts.last.run)
    assert record is not None
    for unknown in ({"claimed_at": record.claimed_at + 1}, {"attempt": 7}):
        write_record(hosts.last.run.work_record, WorkRecord.from_dict({**record.to_dict(), **unknown}))
        inode = hosts.last.run.work.stat().st_ino
        hosts.start()
        assert read_tree(hosts.last.run.work) == {**CODE, "state": (b"1", False)}, "it is stored"
        assert (hosts.last.run.root.parent / ".stale.work").stat().st_ino == inode
        hosts.end()


def test_what_is_left_of_an_attempt_is_ended_before_the_next_one_starts(hosts: Hosts) -> None:
    before = hosts.start()
    hosts.write("state", b"1")
    hosts.lose()
    ended: list[bool] = []
    hosts.claim().engine.before_start = lambda: ended.append(before.report is not None)
    hosts.last.start_ranks()
    assert ended == [True]
    assert (hosts.last.run.work / "state").read_bytes() == b"1"


def test_a_process_that_does_not_end_delays_the_next_attempt(hosts: Hosts) -> None:
    before = hosts.start()
    before.unkillable = True
    hosts.lose()
    hosts.claim().start_runner()
    wait_for(lambda: any("attempt 1 still runs here" in text for text in hosts.messages()), "the message")
    assert hosts.last.key not in hosts.last.engine.attempts
    before.unkillable = False
    wait_for(lambda: hosts.last.key in hosts.last.engine.attempts, "the start")


def test_a_process_that_never_ends_sends_the_job_to_another_host(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "LONGEST_END_S", 0.0)
    hosts.start().unkillable = True
    hosts.lose()
    hosts.claim().start_runner()
    assert hosts.last.wait_for_end().state == JobState.QUEUED
    assert hosts.last.row.end_reason == EndReason.WORKER_LOST
    assert "attempt 1 still runs here" in (hosts.last.row.detail or "")
    hosts.start("b")


def test_event_files_give_each_point_once_over_attempts(hosts: Hosts) -> None:
    hosts.start()
    first = scalars("loss", {1: 0.1})
    write(hosts.last.run.work / "runs" / NAME, first)
    hosts.last.save_checkpoint(1)
    wait_for(lambda: hosts.store.series(hosts.job_id) and hosts.last.row.checkpoints, "the first point")
    hosts.lose()
    second = scalars("loss", {2: 0.2})  # nobody reads it for the first attempt
    write(hosts.last.run.work / "runs" / NAME, first + second)
    write(hosts.last.run.artifacts / "tb" / NAME, scalars("accuracy", {2: 0.9}))
    hosts.start()
    write(hosts.last.run.work / "runs" / NAME, first + second + scalars("loss", {3: 0.3}))
    hosts.end(EndReason.COMPLETED)
    found = hosts.store.series(hosts.job_id)
    assert {key: list(series.steps) for key, series in found.items()} == {"loss": [1, 2, 3], "accuracy": [2]}


@pytest.mark.parametrize("config", [{"checkpoints": ["out/*.pt"]}])
def test_a_file_is_captured_once_over_attempts(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capturing, "LOOK_SHARE", 0)
    monkeypatch.setattr(capturing.Capturing.__init__, "__kwdefaults__", {"mask": None, "look_s": 0.0})

    def captured() -> list[tuple[int, str]]:
        rows = hosts.store.read(lambda session: checkpoints.list_newest_first(session, hosts.job_id))
        return sorted((row.attempt, row.files[0]["path"]) for row in rows)

    hosts.start()
    hosts.write("out/a.pt", b"a")
    wait_for(captured, "the first checkpoint")
    hosts.lose()
    hosts.write("out/b.pt", b"b")  # nobody captures it for the first attempt
    hosts.start()
    hosts.end()
    hosts.start()
    hosts.end(EndReason.COMPLETED)
    assert captured() == [(1, "out/a.pt"), (2, "out/b.pt")]


@pytest.mark.parametrize("config", [{"checkpoints": ["out/*"]}])
@pytest.mark.parametrize("host", [pytest.param("a", marks=pytest.mark.thorough), "b"])
def test_a_torn_file_lies_beside_the_whole_one_before_it(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setattr(capturing, "LOOK_SHARE", 0)
    monkeypatch.setattr(capturing.Capturing.__init__, "__kwdefaults__", {"mask": None, "look_s": 0.0})

    def captured() -> list[tuple[str, bool]]:
        rows = hosts.store.read(lambda session: checkpoints.list_newest_first(session, hosts.job_id))
        return [(row.files[0]["path"], row.damaged) for row in rows]

    hosts.start()
    whole = zipped(b"whole")
    hosts.write("out/epoch=1.ckpt", whole)
    hosts.write("out/last.pt", whole)
    wait_for(lambda: len(captured()) == 2, "the whole files")
    hosts.write("out/last.pt", whole[:-5])
    hosts.end(EndReason.KILLED)
    assert captured()[0] == ("out/last.pt", True)
    plan = hosts.start(host).plan
    work = hosts.last.run.work
    assert {path.name: path.read_bytes() for path in (work / "out").iterdir()} == {
        "epoch=1.ckpt": whole,
        "last.pt": whole,
        "last.pt.torn": whole[:-5],
    }
    given = {path.name: path.read_bytes() for path in (hosts.last.run.resume / "out").iterdir()}
    assert [*given.values()] == [whole]
    assert plan.env["TORCHYARD_RESUME_FROM"] == str(hosts.last.run.resume)
    told = [text for text in hosts.messages() if "TORCHYARD_RESUME_FROM has checkpoint" in text]
    assert [text.rpartition(": ")[2] for text in told] == [f"out/{name}" for name in given]
    hosts.end(EndReason.COMPLETED)
    assert sorted(captured()) == [("out/epoch=1.ckpt", False), ("out/last.pt", False), ("out/last.pt", True)]


def test_a_folder_that_is_a_link_is_set_aside(hosts: Hosts, tmp_path: Path) -> None:
    hosts.start()
    hosts.end()
    outside = tmp_path / "outside"
    hosts.last.run.work.rename(outside)
    hosts.last.run.work.symlink_to(outside)
    (outside / "kept").touch()
    hosts.start()
    assert read_tree(hosts.last.run.work) == CODE
    assert (outside / "kept").exists()


def test_artifacts_that_are_a_link_stay_behind(hosts: Hosts, tmp_path: Path) -> None:
    hosts.start()
    (tmp_path / "secret").touch()
    hosts.last.run.artifacts.rmdir()
    hosts.last.run.artifacts.symlink_to(tmp_path)
    hosts.end()
    hosts.start()
    assert not hosts.last.run.artifacts.is_symlink()
    assert list(hosts.last.run.artifacts.iterdir()) == []


def test_of_a_job_that_succeeded_only_what_changed_stays(hosts: Hosts, tmp_path: Path) -> None:
    hosts.start()
    hosts.write("lib/a.py", b"a = 2")
    hosts.write("out/plot.png", b"plot")
    (hosts.last.run.work / "aside").symlink_to(tmp_path)
    hosts.end(EndReason.COMPLETED)
    assert read_tree(hosts.last.run.work / "lib") == {"a.py": (b"a = 2", False)}
    assert {path.name for path in hosts.last.run.work.iterdir()} == {"lib", "out", "aside"}
    assert hosts.last.run.work_record.exists()


def test_a_file_of_the_code_with_other_content_stays_whatever_its_time_and_size(hosts: Hosts) -> None:
    hosts.start()
    changed, touched = (hosts.last.run.work / path for path in ("lib/a.py", "train.py"))
    before = changed.stat()
    hosts.write("lib/a.py", b"a = 2")
    os.utime(changed, ns=(before.st_atime_ns, before.st_mtime_ns))
    touched.chmod(0o600)
    hosts.end(EndReason.COMPLETED)
    assert read_tree(hosts.last.run.work) == {"lib/a.py": (b"a = 2", False)}


def test_nothing_is_trimmed_behind_a_link_of_the_job(hosts: Hosts, tmp_path: Path) -> None:
    hosts.start()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "a.py").write_bytes(CODE["lib/a.py"][0])
    os.utime(tmp_path / "lib" / "a.py", ns=(1, 1))
    (hosts.last.run.work / "lib").rename(hosts.last.run.work / "old")
    (hosts.last.run.work / "lib").symlink_to(tmp_path / "lib")
    hosts.end(EndReason.COMPLETED)
    assert (tmp_path / "lib" / "a.py").exists()


@pytest.mark.parametrize("end", [EndReason.USER_ERROR, EndReason.PAUSED])
def test_of_a_job_that_goes_on_all_stays(hosts: Hosts, end: EndReason) -> None:
    hosts.start()
    hosts.end(end)
    assert read_tree(hosts.last.run.work) == CODE


def test_a_folder_of_which_all_is_stored_can_go_and_comes_back(hosts: Hosts) -> None:
    hosts.start()
    hosts.write("state", b"1")
    hosts.end(EndReason.PAUSED)
    run = hosts.last.run
    record = workfolders.record_of(run)
    assert record is not None and record.stored
    remove_inside(run.root.parent.parent, run.root.parent.name)
    hosts.start()
    assert (hosts.last.run.work / "state").read_bytes() == b"1"
    record = workfolders.record_of(hosts.last.run)
    assert record is not None and not record.stored, "it changes"
    (hosts.last.run.work / "link").symlink_to("state")
    hosts.end(EndReason.PAUSED)
    record = workfolders.record_of(hosts.last.run)
    assert record is not None and not record.stored


def test_a_folder_that_is_used_again_is_not_stored_as_it_is(hosts: Hosts) -> None:
    hosts.start()
    hosts.end(EndReason.PAUSED)
    hosts.start()
    record = workfolders.record_of(hosts.last.run)
    assert record is not None and (record.attempt, record.stored) == (2, False)
