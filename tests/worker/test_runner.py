"""One attempt over a real store and real processes, through what can go wrong in its run directory and its store."""

from collections.abc import Generator
from dataclasses import dataclass, field
from datetime import timedelta
import hashlib
from io import BytesIO
import os
from pathlib import Path
import re
import shutil
import signal
import socket
import subprocess
import threading
from typing import Any

import pytest

from store.blobs import Blobs
from store.db.database import Database
from store.db.tables import Attempt as AttemptRow
from store.db.tables import Job
from store.rows import attempts, checkpoints, logs
from store.rows.attempts import Claim
from store.rows.checkpoints import NewCheckpoint
from tests.databases import away
from tests.disks import mounted
from tests.store.yard import Yard, store_on
from tests.worker.attempt import Attempt, wait_for
from torchyard import failpoints
from torchyard.job import EndReason, JobState
from torchyard.publishing import publish
from torchyard.rundir import (
    ExitReport,
    Manifest,
    ManifestFile,
    ProcessIdentity,
    RunDir,
    StopRequest,
    read_record,
    write_record,
)
from worker.attempts.runner import Host, Runner
from worker.engines.local import process
from worker.engines.local.strays import kill_strays

READY = """
import os, pathlib, signal, sys, time
root = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"])
def ready(): (root / "ready").touch()
def gate():
    while not (root.parent / "gate").exists(): time.sleep(0.01)
"""
LEAVES_ON_TERM = (
    READY
    + """
def leave(*_):
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
ready()
while True: time.sleep(0.05)
"""
)
DEAF = READY + "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nready()\nwhile True: time.sleep(1)"
WAITS_AND_SPEAKS = READY + "ready()\ngate()\nprint('the last line', end='')"
SAVES = (
    READY
    + """
import torchyard
run = torchyard.init()
run.save_checkpoint({"step": 3}, step=3, metrics={})
print("saved")
"""
)
VANDAL = (
    READY
    + """
import shutil
ready()
gate()
for name in ("supervisor.json", "exit.json"):
    (root / name).write_text("{")
print("the last line", flush=True)
"""
)
STOPPED = READY + "ready()\nos.kill(os.getpid(), signal.SIGSTOP)\nwhile True: time.sleep(1)"
DELETES_ALL = READY + "import shutil\nready()\ngate()\nshutil.rmtree(root)"


@dataclass
class Bench:
    """A claimed job whose attempt is about to be started under the stand-in for torchrun."""

    yard: Yard
    host: Host
    claim: Claim
    attempt: Attempt
    runners: list[Runner] = field(default_factory=list[Runner])

    @property
    def runner(self) -> Runner:
        return self.runners[-1]

    def start(self, script: str) -> None:
        self.attempt.start(script)
        self.run()

    def run(self, *, preempted: bool = False) -> None:
        self.runners.append(Runner(self.host, self.claim, on_end=threading.Event().set))
        if preempted:
            self.runner.preempt()
        self.runner.start()

    def ready(self) -> None:
        wait_for((self.attempt.run.root / "ready").exists, "the rank")
        wait_for(lambda: self.row.launcher is not None, "the supervisor is known")

    def open_gate(self) -> None:
        (self.attempt.run.root.parent / "gate").touch()

    def ended(self) -> Job:
        wait_for(lambda: self.runner.done, "the runner's end")
        return self.job

    @property
    def job(self) -> Job:
        return self.yard.job(self.claim.job_id)

    @property
    def row(self) -> AttemptRow:
        return self.yard.attempt(self.claim)

    def lines(self) -> list[str]:
        return [line.text for line in self.yard.read(lambda s: logs.after(s, self.claim.job_id, line=0, limit=1000))]

    def messages(self) -> list[str]:
        return [event.data["text"] for event in self.yard.events(self.claim.job_id) if event.type == "message"]


@pytest.fixture
def spec() -> dict[str, Any]:
    """What a test changes of the job."""
    return {}


@pytest.fixture
def bench(tmp_path: Path, database: Database, spec: dict[str, Any]) -> Generator[Bench]:
    yard = Yard(database)
    job_id = yard.submit(**spec)
    claim = yard.starting(job_id, yard.worker())
    host = Host(store_on(database, blobs=Blobs(tmp_path / "blobs")), tmp_path / "runs", (), 1)
    run = RunDir(host.runs / job_id / "1")
    run.create()
    bench = Bench(yard, host, claim, Attempt(run, job_id, 1))
    yield bench
    assert process.kill_attempt(job_id, 1) == []
    for runner in bench.runners:
        runner.leave()
        runner.join(30)


def test_the_last_words_are_stored_before_the_end(bench: Bench) -> None:
    bench.start(WAITS_AND_SPEAKS)
    bench.ready()
    wait_for(lambda: bench.job.state == JobState.RUNNING, "running")
    bench.open_gate()
    assert bench.ended().state == JobState.SUCCEEDED
    assert bench.lines() == ["the last line"]
    assert bench.yard.held() == {}


def test_a_job_that_rewrites_its_records_ends_as_what_it_was(bench: Bench) -> None:
    bench.start(VANDAL)
    bench.ready()
    bench.open_gate()
    assert bench.ended().state == JobState.SUCCEEDED
    assert bench.lines() == ["the last line"]


def test_an_exit_report_that_cannot_be_read_loses_no_line(bench: Bench) -> None:
    bench.start(READY + "print('the last line', flush=True)\nready()\nwhile True: time.sleep(1)")
    bench.ready()
    bench.attempt.run.exit.write_text("{")
    process.send(bench.attempt.supervisor, signal.SIGKILL)
    job = bench.ended()
    assert (job.state, job.restarts) == (JobState.QUEUED, 0)
    assert (bench.row.end_reason, bench.row.detail) == (EndReason.WORKER_LOST, "the attempt's supervisor was killed")
    assert "the last line" in bench.lines()
    assert bench.attempt.left() == []


def test_a_job_that_deletes_its_run_directory_ends(bench: Bench) -> None:
    bench.start(DELETES_ALL)
    bench.ready()
    bench.open_gate()
    assert bench.ended().state == JobState.QUEUED
    assert bench.yard.held() == {}


def test_a_job_without_its_run_directory_can_be_cancelled(bench: Bench) -> None:
    bench.start(LEAVES_ON_TERM)
    bench.ready()
    shutil.rmtree(bench.attempt.run.root)
    bench.yard.cancel(bench.claim.job_id)
    assert bench.ended().state == JobState.CANCELLED
    assert bench.attempt.left() == []


def test_a_stop_that_cannot_be_written_reaches_the_job_as_a_signal(bench: Bench) -> None:
    _refuse_stop(bench.attempt.run)
    bench.start(LEAVES_ON_TERM)
    bench.ready()
    bench.yard.cancel(bench.claim.job_id)
    assert bench.ended().state == JobState.CANCELLED
    assert "saved" in bench.lines()


def test_a_lost_attempts_processes_end_even_if_no_stop_can_be_written(bench: Bench) -> None:
    _refuse_stop(bench.attempt.run)
    bench.start(LEAVES_ON_TERM)
    bench.ready()
    bench.yard.expire(bench.claim)
    assert bench.yard.rescue(bench.claim)
    bench.runner.abandon()
    wait_for(lambda: bench.runner.done, "the runner's end")
    assert bench.attempt.left() == []


def test_a_full_blob_store_is_waited_for(bench: Bench) -> None:
    bench.host.store.blobs.root.write_text("in the way")
    bench.start(SAVES)
    wait_for(bench.messages, "the owner is told")
    assert "cannot be stored now" in bench.messages()[0]
    bench.host.store.blobs.root.unlink()
    assert bench.ended().state == JobState.SUCCEEDED
    assert bench.row.checkpoints == 1
    assert bench.lines() == ["saved"]
    assert bench.messages()[1:] == ["what the attempt writes is stored again"]


@pytest.fixture
def small_disk(bench: Bench) -> Generator[Path]:
    """The blob store on a file system of 1 MiB, which is filled up."""
    folder = bench.host.store.blobs.root
    folder.mkdir()
    with mounted(folder, kibibytes=1024):
        with (folder / "ballast").open("wb") as ballast, pytest.raises(OSError, match="No space left"):
            while True:
                ballast.write(bytes(65_536))
                ballast.flush()
        yield folder


def test_training_goes_on_while_the_disk_of_the_blobs_is_full(bench: Bench, small_disk: Path) -> None:
    bench.start(SAVES + "ready()\ngate()\nprint('trained on')\n")
    wait_for(bench.messages, "the owner is told")
    assert "No space left on device" in bench.messages()[0]
    bench.ready()  # the checkpoint was saved, and the script went on
    bench.open_gate()
    assert bench.attempt.report().reason is EndReason.COMPLETED
    assert bench.row.ended_at is None
    (small_disk / "ballast").unlink()
    assert bench.ended().state == JobState.SUCCEEDED
    assert bench.row.checkpoints == 1
    assert bench.lines() == ["saved", "trained on"]
    assert bench.messages()[1:] == ["what the attempt writes is stored again"]


@pytest.fixture
def no_room(bench: Bench) -> Generator[Path]:
    """A job that is to resume from a checkpoint of 512 KiB, on a disk for its run directory that has less."""
    blob = bench.host.store.blobs.add(BytesIO(bytes(1 << 19)))
    files = [ManifestFile(path="state.pt", size=blob.size, sha256=blob.sha256)]
    new = NewCheckpoint("step-1", Manifest(step=1, metrics={}, files=files), files)
    bench.yard.record(bench.claim, seq=0, checkpoints=[new])
    with mounted(bench.host.runs, kibibytes=900):
        (bench.host.runs / "ballast").write_bytes(bytes(1 << 19))
        yield bench.host.runs / "ballast"


def test_an_attempt_that_has_no_room_to_start_waits_and_says_so(bench: Bench, no_room: Path) -> None:
    bench.run()
    wait_for(bench.messages, "the owner is told")
    assert bench.messages()[0].startswith("the attempt cannot be prepared now, and waits: [Errno 28] No space left")
    assert bench.row.ended_at is None
    bench.runner.leave()
    bench.runner.join(30)
    assert bench.row.ended_at is None
    no_room.unlink()
    bench.run()
    assert bench.ended().reason_code == EndReason.DATA_ERROR  # there is no code to run
    assert (bench.attempt.run.resume / "state.pt").stat().st_size == 1 << 19
    assert bench.messages()[1].endswith("(step 1)")


@pytest.mark.parametrize(("stop", "state"), [("cancel", JobState.CANCELLED), ("pause", JobState.PAUSED)])
def test_an_attempt_that_has_no_room_to_start_obeys_a_stop(
    bench: Bench, no_room: Path, stop: str, state: JobState
) -> None:
    bench.run()
    wait_for(bench.messages, "the owner is told")
    getattr(bench.yard, stop)(bench.claim.job_id)
    assert bench.ended().state == state
    assert bench.job.restarts == 0
    assert bench.yard.held() == {}
    assert no_room.exists()


def test_an_attempt_that_a_broken_disk_keeps_from_starting_uses_up_no_restart(
    bench: Bench, no_room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_room.unlink()
    monkeypatch.setenv(failpoints.VARIABLE, "blob.fsync=error:EIO")
    failpoints.arm()
    try:
        bench.run()
        assert bench.ended().state == JobState.QUEUED
    finally:
        monkeypatch.undo()
        failpoints.arm()
    assert (bench.row.end_reason, bench.job.restarts) == (EndReason.WORKER_LOST, 0)
    assert "Input/output error" in str(bench.row.detail)


def test_a_worker_that_leaves_before_all_is_stored_leaves_the_attempt_open(bench: Bench) -> None:
    bench.host.store.blobs.root.write_text("in the way")
    bench.start(SAVES)
    wait_for(bench.messages, "the owner is told")
    bench.attempt.report()
    bench.runner.leave()
    bench.runner.join(30)
    assert bench.row.ended_at is None
    bench.host.store.blobs.root.unlink()
    bench.run()
    assert bench.ended().state == JobState.SUCCEEDED
    assert bench.row.checkpoints == 1


def test_a_cancel_ends_the_wait_for_a_full_blob_store(bench: Bench) -> None:
    bench.host.store.blobs.root.write_text("in the way")
    bench.start(SAVES)
    wait_for(bench.messages, "the owner is told")
    bench.attempt.report()
    bench.yard.cancel(bench.claim.job_id)
    bench.ended()
    assert bench.yard.held() == {}


def test_a_socket_in_a_files_place_does_not_keep_the_attempt_open(bench: Bench, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        short = tmp_path / "s"
        listener.bind(str(short))
        short.rename(bench.attempt.run.events)
        bench.start(WAITS_AND_SPEAKS)
        bench.open_gate()
        assert bench.ended().state == JobState.SUCCEEDED
    assert bench.messages() == ["events.jsonl cannot be opened, and is not read"]


def test_a_preempt_before_the_supervisor_is_there_requeues(bench: Bench) -> None:
    bench.attempt.start(LEAVES_ON_TERM)
    bench.run(preempted=True)
    assert bench.ended().state == JobState.QUEUED
    assert bench.row.end_reason == EndReason.PREEMPTED
    assert bench.runner.requeued
    assert bench.job.restarts == 0


def test_a_database_that_is_away_delays_the_end_and_loses_nothing(
    bench: Bench, database: Database, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.attempts.runner._OUTAGE_S", 0.1)
    bench.start(WAITS_AND_SPEAKS)
    bench.ready()
    with away(database):
        bench.open_gate()
        wait_for(lambda: "trying again" in caplog.text, "the outage is noticed")
        bench.attempt.report()
    assert bench.ended().state == JobState.SUCCEEDED
    assert bench.lines() == ["the last line"]
    (told,) = bench.messages()
    assert re.fullmatch(r"what the attempt writes is stored again, after \d+ s without the database", told)


def test_a_damaged_checkpoint_is_skipped_and_its_owner_told(bench: Bench) -> None:
    for seq, content in enumerate((b"older", b"newer")):
        blob = bench.host.store.blobs.add(BytesIO(content))
        files = [ManifestFile(path="state.pt", size=blob.size, sha256=blob.sha256)]
        manifest = Manifest(step=seq + 1, metrics={}, files=files)
        bench.yard.record(bench.claim, seq=seq, checkpoints=[NewCheckpoint(f"step-{seq}", manifest, files)])
    newest = hashlib.sha256(b"newer").hexdigest()
    bench.host.store.blobs.path(newest).write_bytes(b"noise")
    bench.run()
    assert bench.ended().state == JobState.FAILED  # as there is no code to run
    assert (bench.attempt.run.resume / "state.pt").read_bytes() == b"older"
    assert bench.row.start_step == 1
    damaged, resumed = bench.messages()
    assert damaged.startswith("1 damaged checkpoints were skipped")
    assert resumed.endswith("(step 1)")


@pytest.mark.parametrize("spec", [{"checkpoint": {"keep_last": 2}}])
def test_what_a_crash_left_of_removed_checkpoints_goes_and_what_was_not_relayed_stays(bench: Bench) -> None:
    run = bench.attempt.run
    for step in (1, 2, 3, 4):
        name = f"step-{step:08d}"
        publish(run.checkpoints, name, {"state.pt": bytes([step])}, Manifest(step=step, files=[]))
        if step < 4:  # the last one was neither announced nor read when the worker died
            manifest = read_record(run.checkpoints / name / "manifest.json", Manifest)
            assert manifest is not None
            new = NewCheckpoint(name, manifest, manifest.files)
            bench.yard.record(bench.claim, seq=step - 1, checkpoints=[new])
    write_record(run.launch, bench.attempt.plan(["/bin/true"]))
    write_record(run.supervisor, ProcessIdentity(pid=1, start_time=1, boot_id="another"))
    bench.run()
    bench.ended()
    rows = bench.yard.read(lambda session: checkpoints.newest_first(session, bench.claim.job_id))
    assert [row.step for row in rows] == [4, 3]
    assert sorted(path.name for path in run.checkpoints.iterdir()) == ["step-00000003", "step-00000004"]
    told = [event.data["step"] for event in bench.yard.events(bench.claim.job_id) if event.type == "checkpoint"]
    assert told == [1, 2, 3, 4]


@pytest.mark.parametrize(("earlier", "ends"), [(0, "completed"), (1, "data_error")])
def test_what_another_attempt_with_its_number_left_is_not_taken_for_its_own(
    bench: Bench, earlier: int, ends: str
) -> None:
    run = bench.attempt.run
    plan = bench.attempt.plan(["/bin/true"]).model_copy(update={"claimed_at": bench.row.started_at - earlier})
    write_record(run.launch, plan)
    write_record(run.supervisor, ProcessIdentity(pid=1, start_time=1, boot_id="another"))
    write_record(run.exit, ExitReport(reason=EndReason.COMPLETED))
    run.log("rank-0", "stdout").write_text("its words\n")
    bench.run()
    assert bench.ended().reason_code == ends  # there is no code to run
    assert bench.lines() == ["its words"] * (not earlier)
    kept = {path.name: (path / "exit.json").exists() for path in run.root.parent.iterdir()}
    assert kept == ({"1": False, ".stale.1": True} if earlier else {"1": True})


def test_strays_are_stopped_whatever_their_records_say(bench: Bench) -> None:
    bench.attempt.start(READY + "ready()\nwhile True: time.sleep(1)")
    wait_for((bench.attempt.run.root / "ready").exists, "the rank")
    process.send(bench.attempt.supervisor, signal.SIGKILL)
    bench.attempt.run.supervisor.write_text("{")
    kill_strays(bench.host.runs, [bench.claim])
    assert bench.attempt.left()
    kill_strays(bench.host.runs, [])
    assert bench.attempt.left() == []


@pytest.mark.parametrize("spec", [{"stop_grace": "1h"}])
def test_a_stop_has_the_jobs_own_grace_unless_the_worker_itself_stops(bench: Bench) -> None:
    def asked(reason: EndReason, **grace: int) -> bool:
        request = StopRequest(reason=reason, grace=timedelta(**grace))
        return read_record(bench.attempt.run.stop, StopRequest) == request

    bench.start(DEAF)
    bench.ready()
    bench.runner.preempt()
    wait_for(lambda: asked(EndReason.PREEMPTED, hours=1), "the stop")
    bench.yard.cancel(bench.claim.job_id)
    wait_for(lambda: asked(EndReason.CANCELLED, hours=1), "the cancel")
    bench.runner.preempt(hurry=True)
    wait_for(lambda: asked(EndReason.CANCELLED, seconds=30), "the shorter grace")
    bench.attempt.stop(grace=0)
    assert bench.ended().state == JobState.CANCELLED


def test_a_supervisor_that_somebody_stopped_goes_on(bench: Bench) -> None:
    bench.start(LEAVES_ON_TERM)
    bench.ready()
    process.send(bench.attempt.supervisor, signal.SIGSTOP)
    bench.yard.cancel(bench.claim.job_id)
    assert bench.ended().state == JobState.CANCELLED
    assert bench.row.end_reason == EndReason.CANCELLED
    assert "saved" in bench.lines()


def test_a_supervisor_that_stays_stopped_past_the_grace_is_killed_with_its_attempt(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.engines.local.stops._OVERDUE_S", float("-inf"))
    bench.attempt.start(DEAF)
    wait_for((bench.attempt.run.root / "ready").exists, "the rank")
    process.send(bench.attempt.supervisor, signal.SIGSTOP)
    wait_for(lambda: process.is_stopped(bench.attempt.supervisor), "it is stopped")
    bench.yard.cancel(bench.claim.job_id)
    bench.run()
    assert bench.ended().state == JobState.CANCELLED
    assert bench.row.detail == "the attempt's supervisor was killed"
    assert bench.attempt.left() == []


def test_an_attempt_whose_processes_cannot_be_killed_keeps_its_devices_and_its_owner_is_told(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(target: ProcessIdentity, number: signal.Signals) -> bool:
        if number == signal.SIGKILL:
            raise PermissionError("as for another user's process")
        return send(target, number)

    send = process.send
    bench.start(DEAF)
    bench.ready()
    with monkeypatch.context() as patch:
        patch.setattr(process, "send", refused)
        patch.setattr("worker.engines.local.strays._DEADLINE_S", 0.2)
        send(bench.attempt.supervisor, signal.SIGKILL)
        wait_for(bench.messages, "the owner is told")
        assert bench.yard.held() != {}
    assert bench.ended().state == JobState.QUEUED
    (told,) = bench.messages()
    assert told.startswith("these processes cannot be killed, and keep the devices")
    assert bench.yard.held() == {}


@pytest.mark.parametrize("spec", [{"stop_grace": "1s"}])
def test_a_cancelled_job_whose_rank_is_stopped_ends_with_its_grace(bench: Bench) -> None:
    bench.start(STOPPED)
    bench.ready()
    rank = read_record(bench.attempt.run.ranks / "0.json", ProcessIdentity)
    assert rank is not None
    wait_for(lambda: process.is_stopped(rank), "the rank is stopped")
    bench.yard.cancel(bench.claim.job_id)
    assert bench.ended().state == JobState.CANCELLED
    assert bench.row.detail == "cancelled by its owner; killed after a grace of 1s"
    assert bench.attempt.left() == []


def test_a_runner_whose_end_nobody_hears_ends(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    def closed() -> None:
        raise ValueError("I/O operation on closed file")

    bench.runners.append(Runner(bench.host, bench.claim, on_end=closed))
    bench.runner.start()
    bench.runner.join(30)
    assert bench.ended().state == JobState.FAILED  # as there is no code to run
    assert "the end of attempt 1 was not told" in caplog.text


def test_a_supervisor_of_another_boot_is_gone(bench: Bench) -> None:
    write_record(bench.attempt.run.launch, bench.attempt.plan(["/bin/true"]))
    write_record(bench.attempt.run.supervisor, ProcessIdentity(pid=1, start_time=1, boot_id="another"))
    bench.run()
    assert bench.ended().state == JobState.QUEUED
    assert bench.row.detail == "the host was restarted"
    assert bench.job.restarts == 0


def test_a_process_that_has_a_supervisors_pid_is_neither_adopted_nor_killed(bench: Bench) -> None:
    write_record(bench.attempt.run.launch, bench.attempt.plan(["/bin/true"]))
    with subprocess.Popen(["/bin/sleep", "600"]) as stranger:
        try:
            now = process.identity(stranger.pid)
            assert now is not None
            supervisor = now.model_copy(update={"start_time": now.start_time - 1})
            bench.yard.write(lambda session: attempts.launched(session, bench.claim, supervisor.model_dump()))
            write_record(bench.attempt.run.supervisor, supervisor)
            bench.run()
            assert bench.ended().state == JobState.QUEUED
            assert bench.row.detail == "the attempt's supervisor was killed"
            assert process.is_alive(now)
        finally:
            stranger.kill()


def _refuse_stop(run: RunDir) -> None:
    """The worker, which is this process, cannot write it."""
    run.stop.with_name(f".{run.stop.name}.{os.getpid()}").mkdir()
