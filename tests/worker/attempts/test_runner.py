"""A runner over a real store and a real run directory, on an engine without processes."""

from datetime import timedelta
import errno
import io
import json
import logging
import os
import threading
from typing import Any

import pytest
from sqlalchemy import event, update

from store.blobs.folder import BlobFolder
from store.output.facts import NewCheckpoint
from store.tables import Attempt as AttemptRow
from tests.approved import Approved
from tests.worker.attempt import wait_for
from tests.worker.attempts.fixture import SimulatedRunnerFixture
from torchyard.contract.attempts.records import Manifest, ManifestFile
from torchyard.contract.errors import Unavailable
from torchyard.contract.spec.spec import parse_spec
from torchyard.contract.states import EndReason, JobState
from worker.attempts import devices, following, intents, pace
from worker.engines.base import StrayMemory


def one_hour(**_: float) -> float:
    """Replaces the pause between two polls."""
    return 3600.0


def test_all_output_is_stored_before_the_attempt_ends(
    simulated: SimulatedRunnerFixture, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    attempt = simulated.start_ranks()
    simulated.save_checkpoint(3)
    simulated.write_log("the last line")
    attempt.end()
    assert simulated.wait_for_end().state == JobState.SUCCEEDED
    assert simulated.lines() == ["the last line"]
    assert simulated.row.checkpoints == 1
    assert simulated.store.held() == {}
    assert simulated.context.attempt_ended.is_set()
    assert f"{simulated.claim.job_id}: attempt 1 ended: completed; the job is succeeded" in caplog.messages


def test_the_end_of_an_attempt_is_noticed_at_once_however_rarely_it_is_polled(
    simulated: SimulatedRunnerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = threading.Event()

    def begin_to_wait(**_: float) -> float:
        waits.set()
        return 3600.0

    attempt = simulated.start_ranks()
    monkeypatch.setattr(pace, "pause_s", begin_to_wait)
    wait_for(waits.is_set, "the last poll")
    simulated.write_log("the last line")
    attempt.end()
    assert simulated.wait_for_end().state == JobState.SUCCEEDED
    assert simulated.lines() == ["the last line"]
    assert attempt.watchers == []


def test_a_runner_tells_which_devices_its_attempt_uses(simulated: SimulatedRunnerFixture) -> None:
    simulated.start_ranks()
    use = simulated.runner.device_use
    assert (use.job_id, use.number, use.ended) == (simulated.claim.job_id, 1, False)
    assert use.devices


def test_a_runner_that_was_woken_up_waits_again(
    simulated: SimulatedRunnerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated.start_ranks()
    monkeypatch.setattr(pace, "pause_s", one_hour)
    changed = simulated.runner.instructions.changed
    changed.set()
    wait_for(lambda: not changed.is_set(), "the next turn")


def test_a_runner_notices_at_adoption_that_the_attempt_has_ended(
    simulated: SimulatedRunnerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = simulated.start_ranks()
    simulated.detach()
    assert attempt.watchers == []
    attempt.end()
    monkeypatch.setattr(pace, "pause_s", one_hour)
    simulated.start_runner()
    assert simulated.wait_for_end().state == JobState.SUCCEEDED


def test_an_intent_is_read_at_a_wakeup(simulated: SimulatedRunnerFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intents, "READ_EVERY_S", 3600.0)
    monkeypatch.setattr(pace, "pause_s", one_hour)
    simulated.start_runner()
    wait_for(lambda: simulated.row.launcher is not None, "the start")
    simulated.request_stop()
    assert simulated.wait_for_end().state == JobState.CANCELLED


def test_an_attempt_costs_few_transactions(simulated: SimulatedRunnerFixture) -> None:
    statements: list[str] = []

    def record(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement)

    engine = simulated.store.database.engine
    event.listen(engine, "before_cursor_execute", record)
    try:
        simulated.start_runner()
        wait_for(lambda: simulated.run.logs.exists() and simulated.key in simulated.engine.attempts, "the start")
        simulated.write_log("a line")
        simulated.engine.attempts[simulated.key].end()
        simulated.runner.join(120)
    finally:
        event.remove(engine, "before_cursor_execute", record)
    assert simulated.job.state == JobState.SUCCEEDED
    # The launch, the lines together with the state `running`, and the end.
    assert statements.count("BEGIN IMMEDIATE") <= 3
    assert len(statements) <= 35


def test_a_short_attempt_runs_and_ends_in_one_transaction(
    simulated: SimulatedRunnerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "SETTLE_S", 3600.0)
    simulated.start_runner()
    wait_for(lambda: simulated.key in simulated.engine.attempts, "the start")
    attempt = simulated.engine.attempts[simulated.key]
    ranks_seen = threading.Event()
    mark = following.Following.mark_running

    def mark_running(self: following.Following) -> None:
        mark(self)
        ranks_seen.set()

    monkeypatch.setattr(following.Following, "mark_running", mark_running)
    attempt.ranks = 1
    wait_for(ranks_seen.is_set, "a poll that sees the rank")
    assert simulated.job.state == JobState.STARTING
    attempt.end()
    assert simulated.wait_for_end().state == JobState.SUCCEEDED
    assert simulated.store.moves(simulated.claim.job_id) == ["queued", "starting", "running", "succeeded"]


def test_the_resolved_configuration_is_written_for_the_ranks(simulated: SimulatedRunnerFixture) -> None:
    attempt = simulated.start_ranks()
    config = json.loads(simulated.run.config.read_text())
    assert config.pop("memory_shortages") == 0
    assert config.pop("mode") == "train"
    assert config.pop("best") is None
    assert set(config) == {"trainer", "config", "checkpoint"}
    assert parse_spec(config).config == parse_spec(simulated.job.spec).config
    assert attempt.plan.env["TORCHYARD_CONFIG"] == str(simulated.run.config)
    assert simulated.run.config.stat().st_mode & 0o777 == 0o400


@pytest.mark.parametrize("spec", [{"max_restarts": 5}])
def test_the_ranks_learn_how_often_the_job_ran_out_of_memory_since_its_checkpoint(
    simulated: SimulatedRunnerFixture,
) -> None:
    def run_out_of_memory(*steps: int) -> int:
        """Runs the next attempt. Returns what its ranks were told."""
        attempt = simulated.start_ranks()
        told = json.loads(simulated.run.config.read_text())["memory_shortages"]
        for step in steps:
            simulated.save_checkpoint(step)
        attempt.end(EndReason.OUT_OF_MEMORY)
        assert simulated.wait_for_end().state == JobState.QUEUED
        simulated.claim = simulated.store.starting(simulated.claim.job_id, simulated.store.worker())
        return told

    assert [run_out_of_memory(), run_out_of_memory(), run_out_of_memory(7), run_out_of_memory()] == [0, 1, 2, 1]
    attempt = simulated.start_ranks()
    assert json.loads(simulated.run.config.read_text())["memory_shortages"] == 2
    attempt.end()
    assert simulated.wait_for_end().state == JobState.SUCCEEDED


def test_a_rank_that_holds_memory_on_the_gpu_of_another_one_is_named_once(
    simulated: SimulatedRunnerFixture, monkeypatch: pytest.MonkeyPatch, approved: Approved
) -> None:
    monkeypatch.setattr(devices, "LOOK_EVERY_S", 0.0)
    attempt = simulated.start_ranks()
    attempt.stray = [StrayMemory(1, 0, 512 << 20)]
    simulated.runner.look_for_stray_memory()
    wait_for(simulated.messages, "the warning")
    attempt.stray = [StrayMemory(1, 0, 600 << 20), StrayMemory(2, 0, 0)]
    simulated.runner.look_for_stray_memory()
    wait_for(lambda: len(simulated.messages()) == 2, "the second warning")
    attempt.end()
    simulated.wait_for_end()
    first, second = simulated.messages()
    assert first == approved("first")
    assert second == approved("second")


def test_an_attempt_that_completes_before_its_ranks_were_seen_succeeds(simulated: SimulatedRunnerFixture) -> None:
    simulated.start_runner()
    wait_for(lambda: simulated.key in simulated.engine.attempts, "the start")
    simulated.engine.attempts[simulated.key].end()
    assert simulated.wait_for_end().state == JobState.SUCCEEDED
    assert simulated.store.moves(simulated.claim.job_id) == ["queued", "starting", "running", "succeeded"]


def test_an_unknown_observation_does_not_end_the_attempt(simulated: SimulatedRunnerFixture) -> None:
    attempt = simulated.start_ranks()
    attempt.unknown = True
    simulated.write_log("one\n")
    wait_for(lambda: simulated.lines() == ["one"], "the relay goes on")
    assert simulated.row.ended_at is None
    attempt.unknown = False
    attempt.end()
    assert simulated.wait_for_end().state == JobState.SUCCEEDED


@pytest.mark.parametrize("stop", ["cancel", "pause"])
def test_an_intent_of_the_owner_reaches_the_engine(simulated: SimulatedRunnerFixture, stop: str) -> None:
    attempt = simulated.start_ranks()
    simulated.request_stop(stop)
    ends = {"cancel": JobState.CANCELLED, "pause": JobState.PAUSED}
    assert simulated.wait_for_end().state == ends[stop]
    assert len(attempt.requests) == 1


@pytest.mark.parametrize("spec", [{"stop_grace": "1h"}])
def test_a_stop_uses_the_jobs_grace_unless_the_worker_itself_stops(simulated: SimulatedRunnerFixture) -> None:
    attempt = simulated.start_ranks()
    attempt.stops_on_request = False
    hour, cut = timedelta(hours=1), timedelta(seconds=30)
    simulated.runner.instructions.request_preempt()
    wait_for(lambda: attempt.requests == [(EndReason.PREEMPTED, hour)], "the stop")
    simulated.request_stop()
    wait_for(lambda: attempt.requests[-1] == (EndReason.CANCELLED, hour), "the cancel")
    simulated.runner.instructions.request_preempt(urgent=True)
    wait_for(lambda: attempt.requests[-1] == (EndReason.CANCELLED, cut), "the shorter grace")
    attempt.end(EndReason.CANCELLED)
    assert simulated.wait_for_end().state == JobState.CANCELLED


@pytest.mark.parametrize("spec", [{"stop_grace": "3650d", "time_limit": "3650d"}])
def test_a_stored_grace_above_the_workers_maximum_is_cut(simulated: SimulatedRunnerFixture) -> None:
    attempt = simulated.start_ranks()
    attempt.stops_on_request = False
    assert attempt.plan.stop_grace == timedelta(hours=1)
    simulated.request_stop("pause")
    wait_for(lambda: attempt.requests == [(EndReason.PAUSED, timedelta(hours=1))], "the stop")
    simulated.store.cancel(simulated.claim.job_id, grace=timedelta(0))
    simulated.runner.instructions.recheck_intents()
    assert simulated.wait_for_end().state == JobState.CANCELLED
    assert attempt.requests[-1] == (EndReason.CANCELLED, timedelta(0))


@pytest.mark.parametrize("spec", [{"time_limit": "10m"}])
def test_the_time_before_the_start_counts(simulated: SimulatedRunnerFixture) -> None:
    claimed = AttemptRow.started_at - 400_000_000
    simulated.store.write(lambda session: session.execute(update(AttemptRow).values(started_at=claimed)))
    assert timedelta(minutes=1) < simulated.start_ranks().plan.time_limit < timedelta(minutes=4)


@pytest.mark.parametrize("spec", [{"time_limit": "10m"}])
def test_an_attempt_that_cannot_be_prepared_ends_after_the_time_limit(
    simulated: SimulatedRunnerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("worker.attempts.prepare.preparation.Preparation.prepare", refuse)
    claimed = AttemptRow.started_at - 640_000_000
    simulated.store.write(lambda session: session.execute(update(AttemptRow).values(started_at=claimed)))
    simulated.start_runner()
    assert simulated.wait_for_end().state == JobState.FAILED
    assert simulated.row.end_reason == EndReason.TIME_LIMIT


def test_a_cancel_ends_the_copy_of_the_checkpoint_to_resume_from(
    simulated: SimulatedRunnerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, blobs = simulated.claim.job_id, simulated.blobs
    blob = blobs.add(io.BytesIO(bytes(4 << 20)))
    file = ManifestFile(path="state.pt", size=blob.size, sha256=blob.sha256)
    new = NewCheckpoint("step-1", Manifest(step=1, files=[file]), [file])
    simulated.store.record(simulated.claim, seq=0, checkpoints=[new])
    open_blob = BlobFolder.open

    def open_and_cancel(self: BlobFolder, sha256: str) -> Any:
        simulated.store.cancel(job_id)
        return open_blob(self, sha256)

    monkeypatch.setattr(BlobFolder, "open", open_and_cancel)
    monkeypatch.setattr(intents, "READ_EVERY_S", 0.0)
    simulated.start_runner()
    assert simulated.wait_for_end().state == JobState.CANCELLED
    assert (simulated.run.resume / "state.pt").stat().st_size < blob.size
    assert simulated.engine.attempts == {}


def test_a_preempted_attempt_is_queued_again_and_no_restart_is_counted(simulated: SimulatedRunnerFixture) -> None:
    simulated.start_ranks()
    simulated.runner.instructions.request_preempt()
    assert simulated.wait_for_end().state == JobState.QUEUED
    assert simulated.row.end_reason == EndReason.PREEMPTED
    assert simulated.job.restarts == 0


def test_an_attempt_that_is_preempted_before_it_was_prepared_starts_nothing(
    simulated: SimulatedRunnerFixture, approved: Approved
) -> None:
    simulated.start_runner(preempted=True)
    assert simulated.wait_for_end().state == JobState.QUEUED
    assert simulated.row.detail == approved("detail")
    assert simulated.engine.attempts == {}


def test_a_report_of_a_stop_that_was_not_requested_is_not_believed(simulated: SimulatedRunnerFixture) -> None:
    simulated.start_ranks().end(EndReason.PREEMPTED)
    simulated.wait_for_end()
    assert (simulated.row.end_reason, simulated.job.attempts_without_checkpoint) == (EndReason.WORKER_LOST, 1)


def test_a_detached_attempt_goes_on_and_the_next_runner_adopts_it(simulated: SimulatedRunnerFixture) -> None:
    attempt = simulated.start_ranks()
    simulated.detach()
    assert (attempt.report, simulated.row.ended_at) == (None, None)
    simulated.write_log("while detached\n")
    simulated.start_runner()
    wait_for(lambda: simulated.lines() == ["while detached"], "the adoption")
    attempt.end()
    assert simulated.wait_for_end().state == JobState.SUCCEEDED


def test_an_attempt_whose_handle_was_not_stored_is_found_and_not_started_twice(
    simulated: SimulatedRunnerFixture,
) -> None:
    attempt = simulated.start_ranks()
    simulated.detach()

    def forget(session: Any) -> None:
        session.get_one(AttemptRow, simulated.claim.attempt_id).launcher = None

    simulated.store.write(forget)
    (simulated.run.root / "mark").touch()
    simulated.start_runner()
    wait_for(lambda: simulated.row.launcher is not None, "the attempt is found")
    assert (simulated.run.root / "mark").exists()
    attempt.end()
    assert simulated.wait_for_end().state == JobState.SUCCEEDED


def test_an_abandoned_attempt_is_killed_and_nothing_more_is_written(simulated: SimulatedRunnerFixture) -> None:
    attempt = simulated.start_ranks()
    simulated.store.expire(simulated.claim)
    assert simulated.store.rescue(simulated.claim)
    before = simulated.store.everything()
    simulated.write_log("too late\n")
    simulated.runner.instructions.request_abandon()
    simulated.wait_for_end()
    assert attempt.report is not None
    assert simulated.store.everything() == before


@pytest.mark.thorough
def test_a_runner_abandons_an_attempt_that_was_rescued(simulated: SimulatedRunnerFixture) -> None:
    attempt = simulated.start_ranks()
    simulated.store.expire(simulated.claim)
    assert simulated.store.rescue(simulated.claim)
    simulated.wait_for_end()
    assert simulated.runner.instructions.abandon
    assert attempt.report is not None


def test_an_unkillable_attempt_keeps_its_devices_and_its_owner_is_told_once(simulated: SimulatedRunnerFixture) -> None:
    attempt = simulated.start_ranks()
    attempt.unkillable, attempt.supervised = True, False
    wait_for(simulated.messages, "the owner is told")
    assert simulated.store.held() != {}
    attempt.unkillable = False
    assert simulated.wait_for_end().state == JobState.QUEUED
    assert len(simulated.messages()) == 1
    assert simulated.store.held() == {}


@pytest.mark.parametrize("error", [ZeroDivisionError("a defect"), Unavailable("it does not answer")])
def test_an_error_of_the_worker_ends_only_this_attempt(
    simulated: SimulatedRunnerFixture, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    attempt = simulated.start_ranks()

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(simulated.engine, "poll", fail)
    assert simulated.wait_for_end().state == JobState.QUEUED
    detail = f"the worker failed: {type(error).__name__}: {error}"
    assert (simulated.row.end_reason, simulated.row.detail) == (EndReason.WORKER_LOST, detail)
    assert attempt.report is not None
