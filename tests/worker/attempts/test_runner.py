"""A runner over a real store and a real run directory, on an engine without processes."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
import hashlib
from io import BytesIO
import json
from pathlib import Path
import re
import socket
import threading
from typing import Any

import pytest
from sqlalchemy import Engine, event

from store.blobs import Blobs
from store.db.database import Database
from store.db.tables import Attempt as AttemptRow
from store.db.tables import Job
from store.rows import checkpoints, logs
from store.rows.attempts import Claim
from store.rows.checkpoints import NewCheckpoint
from tests.databases import unavailable
from tests.disks import mounted
from tests.store.fixture import StoreFixture, store_on
from tests.worker.attempt import wait_for
from tests.worker.engines.memory import MemoryEngine, Simulated
from torchyard.contract import failpoints
from torchyard.contract.events import CheckpointSaved
from torchyard.contract.job import EndReason, JobState
from torchyard.contract.recordfiles import read_record
from torchyard.contract.records import Manifest, ManifestFile
from torchyard.contract.rundir import RunDir
from torchyard.contract.spec import parse_spec
from torchyard.run.publishing import publish
from worker.attempts import pace, wishes
from worker.attempts.effects import Host
from worker.attempts.runner import Runner
from worker.devices.health import Health
from worker.devices.inventory import Device, Inventory
from worker.engines.base import AttemptKey


@dataclass
class Bench:
    """A claimed job and its runners, one after the other."""

    yard: StoreFixture
    host: Host
    engine: MemoryEngine
    claim: Claim
    run: RunDir
    runners: list[Runner] = field(default_factory=list[Runner])

    @property
    def runner(self) -> Runner:
        return self.runners[-1]

    def start(self) -> None:
        self.runners.append(Runner(self.host, self.claim))
        self.runner.start()

    def started(self) -> Simulated:
        """Starts it, and waits for all its ranks."""
        self.start()
        key = AttemptKey(self.claim.job_id, 1)
        wait_for(lambda: key in self.engine.attempts, "the start")
        self.engine.attempts[key].ranks = 1
        wait_for(lambda: self.job.state == JobState.RUNNING, "running")
        return self.engine.attempts[key]

    def leave(self) -> None:
        self.runner.orders.give_detach()
        wait_for(lambda: self.runner.done, "the runner's end")

    def say(self, text: str) -> None:
        """As rank 0 prints it."""
        with self.run.log("rank-0", "stdout").open("a") as log:
            log.write(text)

    def save(self, step: int) -> None:
        name = f"step-{step:08d}"
        publish(self.run.checkpoints, name, {"state.pt": bytes([step])}, Manifest(step=step, files=[]))
        with self.run.events.open("a") as events:
            events.write(CheckpointSaved(time=0, name=name).to_json() + "\n")

    def ask(self, stop: str = "cancel") -> None:
        """The owner asks, and the bell rings."""
        getattr(self.yard, stop)(self.claim.job_id)
        self.runner.orders.look()

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


def an_hour(**_: float) -> float:
    """Between two looks."""
    return 3600.0


@contextmanager
def heard(engine: Engine, note: Callable[..., None]) -> Generator[None]:
    """`note` gets every statement."""
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield
    finally:
        event.remove(engine, "before_cursor_execute", note)


@pytest.fixture
def spec() -> dict[str, Any]:
    """What a test changes of the job."""
    return {}


@pytest.fixture
def bench(tmp_path: Path, database: Database, spec: dict[str, Any]) -> Generator[Bench]:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").touch()
    yard = StoreFixture(database)
    job_id = yard.submit(config={"code": f"file://{code}"}, **spec)
    claim = yard.starting(job_id, yard.worker())
    engine = MemoryEngine(Inventory((Device(0, "cpu-0", "CPU slot", "cpu"),)))
    runs = tmp_path / "runs"
    host = Host(store_on(database, blobs=Blobs(tmp_path / "blobs")), engine, runs, (code,), Health(), threading.Event())
    bench = Bench(yard, host, engine, claim, RunDir(runs / job_id / "1"))
    yield bench
    for runner in bench.runners:
        runner.orders.give_detach()
        runner.join(30)


def test_all_that_it_wrote_is_stored_before_its_end(bench: Bench) -> None:
    attempt = bench.started()
    bench.save(3)
    bench.say("the last line")
    attempt.end()
    assert bench.ended().state == JobState.SUCCEEDED
    assert bench.lines() == ["the last line"]
    assert bench.row.checkpoints == 1
    assert bench.yard.held() == {}
    assert bench.host.ended.is_set()


def test_an_end_is_seen_at_once_however_rarely_anybody_looks(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = bench.started()
    monkeypatch.setattr(pace, "pause_s", an_hour)
    bench.say("one\n")
    wait_for(lambda: bench.lines() == ["one"], "the last look")
    bench.say("the last line")
    attempt.end()
    assert bench.ended().state == JobState.SUCCEEDED
    assert bench.lines() == ["one", "the last line"]
    assert attempt.watchers == []


def test_one_that_ended_while_nobody_looked_is_seen_by_who_adopts_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = bench.started()
    bench.leave()
    assert attempt.watchers == []
    attempt.end()
    monkeypatch.setattr(pace, "pause_s", an_hour)
    bench.start()
    assert bench.ended().state == JobState.SUCCEEDED


def test_a_wish_is_read_when_the_bell_rings(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wishes, "_EVERY_S", 3600.0)
    monkeypatch.setattr(pace, "pause_s", an_hour)
    bench.start()
    wait_for(lambda: bench.row.launcher is not None, "the start")
    bench.ask()
    assert bench.ended().state == JobState.CANCELLED


def test_an_attempt_costs_few_transactions(bench: Bench) -> None:
    statements: list[str] = []

    def note(*found: object) -> None:
        statements.append(str(found[2]))

    with heard(bench.yard.database.engine, note):
        bench.start()
        key = AttemptKey(bench.claim.job_id, 1)
        wait_for(lambda: bench.run.logs.exists() and key in bench.engine.attempts, "the start")
        bench.say("all that it says")
        bench.engine.attempts[key].end()
        bench.runner.join(30)
    assert bench.job.state == JobState.SUCCEEDED
    # That it was launched, its lines with that it ran, its end.
    assert statements.count("BEGIN IMMEDIATE") <= 3
    assert len(statements) <= 32


def test_its_resolved_configuration_is_written_for_the_ranks_to_read(bench: Bench) -> None:
    attempt = bench.started()
    config = json.loads(bench.run.config.read_text())
    assert set(config) == {"trainer", "config", "checkpoint"}
    assert parse_spec(config).config == parse_spec(bench.job.spec).config
    assert attempt.plan.env["TORCHYARD_CONFIG"] == str(bench.run.config)
    assert bench.run.config.stat().st_mode & 0o777 == 0o400


def test_an_attempt_that_is_over_before_its_ranks_were_seen_has_succeeded(bench: Bench) -> None:
    bench.start()
    key = AttemptKey(bench.claim.job_id, 1)
    wait_for(lambda: key in bench.engine.attempts, "the start")
    bench.engine.attempts[key].end()
    assert bench.ended().state == JobState.SUCCEEDED
    assert bench.yard.moves(bench.claim.job_id) == ["queued", "starting", "running", "succeeded"]


def test_what_the_engine_cannot_tell_ends_nothing(bench: Bench) -> None:
    attempt = bench.started()
    attempt.unknown = True
    bench.say("one\n")
    wait_for(lambda: bench.lines() == ["one"], "the relay goes on")
    assert bench.row.ended_at is None
    attempt.unknown = False
    attempt.end()
    assert bench.ended().state == JobState.SUCCEEDED


@pytest.mark.parametrize("stop", ["cancel", "pause"])
def test_a_wish_of_the_owner_reaches_the_engine(bench: Bench, stop: str) -> None:
    attempt = bench.started()
    bench.ask(stop)
    ends = {"cancel": JobState.CANCELLED, "pause": JobState.PAUSED}
    assert bench.ended().state == ends[stop]
    assert len(attempt.asked) == 1


@pytest.mark.parametrize("spec", [{"stop_grace": "1h"}])
def test_a_stop_has_the_jobs_own_grace_unless_the_worker_itself_stops(bench: Bench) -> None:
    attempt = bench.started()
    attempt.obeys = False
    hour, cut = timedelta(hours=1), timedelta(seconds=30)
    bench.runner.orders.give_preempt()
    wait_for(lambda: attempt.asked == [(EndReason.PREEMPTED, hour)], "the stop")
    bench.ask()
    wait_for(lambda: attempt.asked[-1] == (EndReason.CANCELLED, hour), "the cancel")
    bench.runner.orders.give_preempt(hurry=True)
    wait_for(lambda: attempt.asked[-1] == (EndReason.CANCELLED, cut), "the shorter grace")
    attempt.end(EndReason.CANCELLED)
    assert bench.ended().state == JobState.CANCELLED


def test_a_preempted_attempt_is_queued_again_and_no_restart_is_counted(bench: Bench) -> None:
    bench.started()
    bench.runner.orders.give_preempt()
    assert bench.ended().state == JobState.QUEUED
    assert bench.row.end_reason == EndReason.PREEMPTED
    assert bench.job.restarts == 0


def test_a_preempt_before_it_was_prepared_starts_nothing(bench: Bench) -> None:
    bench.runners.append(Runner(bench.host, bench.claim))
    bench.runner.orders.give_preempt()
    bench.runner.start()
    assert bench.ended().state == JobState.QUEUED
    assert bench.row.detail == "stopped before it started"
    assert bench.engine.attempts == {}


def test_an_end_that_nobody_asked_for_is_not_believed(bench: Bench) -> None:
    bench.started().end(EndReason.PREEMPTED)
    bench.ended()
    assert (bench.row.end_reason, bench.job.attempts_without_checkpoint) == (EndReason.WORKER_LOST, 1)


def test_a_detached_attempt_goes_on_and_the_next_runner_adopts_it(bench: Bench) -> None:
    attempt = bench.started()
    bench.leave()
    assert (attempt.report, bench.row.ended_at) == (None, None)
    bench.say("while nobody looked\n")
    bench.start()
    wait_for(lambda: bench.lines() == ["while nobody looked"], "the adoption")
    attempt.end()
    assert bench.ended().state == JobState.SUCCEEDED


def test_one_whose_handle_was_not_stored_is_found_and_not_started_twice(bench: Bench) -> None:
    attempt = bench.started()
    bench.leave()

    def forget(session: Any) -> None:
        session.get_one(AttemptRow, bench.claim.attempt_id).launcher = None

    bench.yard.write(forget)
    (bench.run.root / "mark").touch()
    bench.start()
    wait_for(lambda: bench.row.launcher is not None, "it is found")
    assert (bench.run.root / "mark").exists()
    attempt.end()
    assert bench.ended().state == JobState.SUCCEEDED


def test_an_abandoned_attempt_is_killed_and_nothing_more_is_written(bench: Bench) -> None:
    attempt = bench.started()
    bench.yard.expire(bench.claim)
    assert bench.yard.rescue(bench.claim)
    before = bench.yard.everything()
    bench.say("too late\n")
    bench.runner.orders.give_abandon()
    bench.ended()
    assert attempt.report is not None
    assert bench.yard.everything() == before


def test_a_rescued_attempt_finds_out_by_itself(bench: Bench) -> None:
    attempt = bench.started()
    bench.yard.expire(bench.claim)
    assert bench.yard.rescue(bench.claim)
    bench.ended()
    assert bench.runner.orders.abandon
    assert attempt.report is not None


def test_what_cannot_be_killed_keeps_its_devices_and_its_owner_is_told_once(bench: Bench) -> None:
    attempt = bench.started()
    attempt.stubborn, attempt.supervised = True, False
    wait_for(bench.messages, "the owner is told")
    assert bench.yard.held() != {}
    attempt.stubborn = False
    assert bench.ended().state == JobState.QUEUED
    assert len(bench.messages()) == 1
    assert bench.yard.held() == {}


def test_an_error_of_the_worker_ends_the_attempt_alone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = bench.started()

    def broken(*_: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(bench.engine, "poll", broken)
    assert bench.ended().state == JobState.QUEUED
    assert (bench.row.end_reason, bench.row.detail) == (
        EndReason.WORKER_LOST,
        "the worker failed: ZeroDivisionError: a defect",
    )
    assert attempt.report is not None


def test_a_full_blob_store_is_waited_for(bench: Bench) -> None:
    bench.host.store.blobs.root.write_text("in the way")
    attempt = bench.started()
    bench.save(3)
    wait_for(bench.messages, "the owner is told")
    assert "cannot be stored now" in bench.messages()[0]
    attempt.end()
    bench.host.store.blobs.root.unlink()
    assert bench.ended().state == JobState.SUCCEEDED
    assert bench.row.checkpoints == 1
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


def test_an_attempt_goes_on_while_the_disk_of_the_blobs_is_full(bench: Bench, small_disk: Path) -> None:
    attempt = bench.started()
    bench.save(3)
    wait_for(bench.messages, "the owner is told")
    assert "No space left on device" in bench.messages()[0]
    bench.say("trained on")
    attempt.end()
    assert bench.row.ended_at is None
    (small_disk / "ballast").unlink()
    assert bench.ended().state == JobState.SUCCEEDED
    assert bench.row.checkpoints == 1
    assert bench.lines() == ["trained on"]
    assert bench.messages()[1:] == ["what the attempt writes is stored again"]


def test_a_worker_that_leaves_before_all_is_stored_leaves_the_attempt_open(bench: Bench) -> None:
    bench.host.store.blobs.root.write_text("in the way")
    attempt = bench.started()
    bench.save(3)
    attempt.end()
    wait_for(bench.messages, "the owner is told")
    bench.leave()
    assert bench.row.ended_at is None
    bench.host.store.blobs.root.unlink()
    bench.start()
    assert bench.ended().state == JobState.SUCCEEDED
    assert bench.row.checkpoints == 1


def test_a_cancel_ends_the_wait_for_a_full_blob_store(bench: Bench) -> None:
    bench.host.store.blobs.root.write_text("in the way")
    attempt = bench.started()
    bench.save(3)
    attempt.end()
    wait_for(bench.messages, "the owner is told")
    bench.ask()
    bench.ended()
    assert bench.yard.held() == {}


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
    bench.start()
    wait_for(bench.messages, "the owner is told")
    assert bench.messages()[0].startswith("the attempt cannot be prepared now, and waits: [Errno 28] No space left")
    bench.leave()
    assert bench.row.ended_at is None
    no_room.unlink()
    bench.started().end()
    assert bench.ended().state == JobState.SUCCEEDED
    assert (bench.run.resume / "state.pt").stat().st_size == 1 << 19
    assert bench.messages()[1].endswith("(step 1)")


@pytest.mark.parametrize(("stop", "state"), [("cancel", JobState.CANCELLED), ("pause", JobState.PAUSED)])
def test_an_attempt_that_has_no_room_to_start_obeys_a_stop(
    bench: Bench, no_room: Path, stop: str, state: JobState
) -> None:
    bench.start()
    wait_for(bench.messages, "the owner is told")
    bench.ask(stop)
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
        bench.start()
        assert bench.ended().state == JobState.QUEUED
    finally:
        monkeypatch.undo()
        failpoints.arm()
    assert (bench.row.end_reason, bench.job.restarts) == (EndReason.WORKER_LOST, 0)
    assert "Input/output error" in str(bench.row.detail)


def test_trouble_with_the_start_and_trouble_with_storing_are_told_each(
    bench: Bench, no_room: Path, tmp_path: Path
) -> None:
    bench.start()
    wait_for(bench.messages, "the first trouble")
    no_room.unlink()
    key = AttemptKey(bench.claim.job_id, 1)
    wait_for(lambda: key in bench.engine.attempts, "the start")
    bench.host.store.blobs.root.rename(tmp_path / "aside")
    bench.host.store.blobs.root.write_text("in the way")
    bench.save(2)
    wait_for(lambda: any("cannot be stored now" in text for text in bench.messages()), "the second trouble")
    assert any("could be prepared" in text for text in bench.messages())


def test_a_socket_in_a_files_place_does_not_keep_the_attempt_open(bench: Bench, tmp_path: Path) -> None:
    attempt = bench.started()
    with socket.socket(socket.AF_UNIX) as listener:
        short = tmp_path / "s"
        listener.bind(str(short))
        short.rename(bench.run.events)
        attempt.end()
        assert bench.ended().state == JobState.SUCCEEDED
    assert bench.messages() == ["events.jsonl cannot be opened, and is not read"]


def test_a_database_that_is_away_delays_the_end_and_loses_nothing(
    bench: Bench, database: Database, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.attempts.spool._OUTAGE_S", 0.1)
    attempt = bench.started()
    with unavailable(database):
        bench.say("the last line")
        attempt.end()
        wait_for(lambda: "trying again" in caplog.text, "the outage is noticed")
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
    bench.started().end()
    bench.ended()
    assert (bench.run.resume / "state.pt").read_bytes() == b"older"
    assert bench.row.start_step == 1
    damaged, resumed = bench.messages()
    assert damaged.startswith("1 damaged checkpoints were skipped")
    assert resumed.endswith("(step 1)")


@pytest.mark.parametrize("spec", [{"checkpoint": {"keep_last": 2}}])
def test_what_a_crash_left_of_removed_checkpoints_goes_and_what_was_not_relayed_stays(bench: Bench) -> None:
    attempt = bench.started()
    bench.leave()
    for step in (1, 2, 3, 4):
        name = f"step-{step:08d}"
        publish(bench.run.checkpoints, name, {"state.pt": bytes([step])}, Manifest(step=step, files=[]))
        if step < 4:  # the last one was neither announced nor read when the worker died
            manifest = read_record(bench.run.checkpoints / name / "manifest.json", Manifest)
            assert manifest is not None
            new = NewCheckpoint(name, manifest, manifest.files)
            bench.yard.record(bench.claim, seq=bench.row.relay_seq, checkpoints=[new])
    attempt.end()
    bench.start()
    bench.ended()
    rows = bench.yard.read(lambda session: checkpoints.newest_first(session, bench.claim.job_id))
    assert [row.step for row in rows] == [4, 3]
    assert sorted(path.name for path in bench.run.checkpoints.iterdir()) == ["step-00000003", "step-00000004"]
    told = [event.data["step"] for event in bench.yard.events(bench.claim.job_id) if event.type == "checkpoint"]
    assert told == [1, 2, 3, 4]
