"""Views of facts, without a database."""

from dataclasses import replace
from datetime import UTC, datetime
import json
from typing import Any

import pytest

from api.present import jobs
from api.present.times import microseconds, time
from api.routes import cluster
from api.routes.attempts import attempt_view
from api.routes.checkpoints import checkpoint_view
from api.routes.stacks import stacks_view
from api.streams.single import view_of
from store.cluster.facts import History, HolderFacts, NamedJob, Use, WorkerFacts, WorkerHistory
from store.ids import new_id
from store.jobs.facts import BestCheckpoint, DependencyFacts, DisplayedReason, JobFacts, ListedAttempt, QueuedJob
from store.output.checkpoints_facts import CAPTURED, CheckpointFacts
from store.output.facts import Answer, MetricPoint, Stacks, TimelineItem
from store.queue.estimates_facts import EstimateFacts
from store.team.callers import Caller
from torchyard.contract.errors import NotFound
from torchyard.contract.jobs.views import JobSummary, JobView
from torchyard.contract.spec.spec import parse_spec
from torchyard.contract.states import EndReason, JobState
from torchyard.contract.team.roles import Role
from torchyard.contract.telemetry.views import EventView, LogLine, MetricView

ADA, EVE = Caller("ada", Role.MEMBER), Caller("eve", Role.MEMBER)
OPERATOR = Caller("oscar", Role.OPERATOR)
SPEC_OF_JOB = parse_spec({"trainer": "script", "config": {"code": "file:///code", "entrypoint": "train.py"}})
SECOND = 1_000_000
DEVICE = {
    "index": 0,
    "uuid": "slot-0",
    "name": "slot-0",
    "kind": "cpu",
    "memory_total_bytes": None,
    "memory_used_bytes": None,
    "utilization": None,
}

JOB = JobFacts(
    id=new_id("job"),
    owner="ada",
    visibility="private",
    name="digits",
    trainer="script",
    state=JobState.QUEUED,
    priority=3,
    labels={"city": "Köln"},
    retry_of=None,
    schedule_id=None,
    version=2,
    attempt=1,
    progress={"epoch": 1},
    devices=(),
    position=9,
    created_at=SECOND,
    started_at=2 * SECOND,
    finished_at=None,
    archived_at=None,
    has_notes=True,
    starred_by=frozenset({"eve"}),
    error={"code": "user_error", "message": "ValueError", "traceback": "…"},
    reason=DisplayedReason("retrying", "attempt 1 ended", 3 * SECOND),
    in_line=4,
    metrics={"val/loss": 0.5},
    monitor="val/loss",
    best=BestCheckpoint(new_id("ckpt"), 0.5, 1, 10),
    spec=SPEC_OF_JOB.model_dump_json(),
    card='{"parameters": 7}',
    notes="# What I saw",
    log_lines=0,
    initial=None,
    after=(
        DependencyFacts(new_id("job"), "prep", "finished", JobState.RUNNING),
        DependencyFacts("job_2", None, "failed", None),
    ),
)


def test_a_job_has_its_spec_its_place_and_its_best_checkpoint() -> None:
    view = JobView.model_validate_json(jobs.encoded_job(JOB, ADA))
    assert view.spec == SPEC_OF_JOB
    assert view.card == {"parameters": 7}
    assert (view.status_reason.position, view.position) == (4, 9)
    assert view.best is not None
    assert (view.best.metric, view.best.value, view.best.step) == ("val/loss", 0.5, 10)
    assert view.error is not None
    assert (view.error.code, view.error.traceback) == (EndReason.USER_ERROR, "…")
    assert (view.created_at, view.finished_at) == (time(SECOND), None)
    told = [(each.name, each.on, each.state) for each in view.after]
    assert told == [("prep", "finished", JobState.RUNNING), (None, "failed", None)]


def test_the_spec_of_a_new_job_is_shown_as_it_was_stored() -> None:
    facts = replace(JOB, spec='{"not": "parsed again"}')
    assert json.loads(jobs.encoded_job(facts, ADA, is_new=True))["spec"] == {"not": "parsed again"}
    with pytest.raises(ValueError, match="validation error"):
        jobs.encoded_job(facts, ADA)


@pytest.mark.parametrize(
    ("caller", "visibility", "whole"),
    [(ADA, "private", True), (EVE, "team", True), (OPERATOR, "private", False), (OPERATOR, "team", True)],
)
def test_a_list_shows_text_and_metrics_to_who_may_read_the_job(caller: Caller, visibility: str, whole: bool) -> None:
    encoded = jobs.encoded_summaries([replace(JOB, visibility=visibility)], caller)
    (row,) = map(JobSummary.model_validate, map(json.loads, encoded))
    assert row.name == "digits"
    told = (row.labels, row.metrics, row.best is not None, row.error is not None, row.status_reason.message)
    assert told == (
        ({"city": "Köln"}, {"val/loss": 0.5}, True, True, "attempt 1 ended") if whole else ({}, {}, False, False, "")
    )


def test_each_is_told_of_the_own_star_alone() -> None:
    shared = replace(JOB, visibility="team")
    for caller, starred in ((ADA, False), (EVE, True)):
        (row,) = map(json.loads, jobs.encoded_summaries([shared], caller))
        whole = json.loads(jobs.encoded_job(shared, caller))
        assert (row["starred"], whole["starred"]) == (starred, starred)
        assert "starred_by" not in whole


def test_notes_are_in_the_job_and_a_list_says_that_there_are_some() -> None:
    whole = json.loads(jobs.encoded_job(JOB, ADA))
    (row,) = map(json.loads, jobs.encoded_summaries([JOB], ADA))
    assert (whole["notes"], row["has_notes"]) == ("# What I saw", True)
    assert "notes" not in row


@pytest.mark.parametrize(
    ("caller", "named", "explained"), [(ADA, True, True), (OPERATOR, True, False), (EVE, False, False)]
)
def test_the_queue_names_a_job_to_who_may_list_it(caller: Caller, named: bool, explained: bool) -> None:
    resources = SPEC_OF_JOB.resources.model_dump(mode="json")
    reason = DisplayedReason("waiting", "w", SECOND)
    expected = EstimateFacts(8 * SECOND, 7 * SECOND, 9 * SECOND, SECOND, held=158, of=200)
    entry = jobs.queue_entry(
        QueuedJob(2, JOB.id, "ada", "private", "digits", 0, resources, reason, 5 * SECOND, SECOND, expected), caller, []
    )
    assert (entry.job_id == JOB.id, entry.name == "digits", entry.reason is not None) == (named, named, explained)
    assert (entry.position, entry.owner, entry.not_before) == (2, "ada", time(5 * SECOND))
    assert entry.estimate is not None, "it says no more of the job than its position does"
    assert (entry.estimate.low, entry.estimate.held) == (time(7 * SECOND), 158)


def test_an_attempt_that_has_ended_has_a_duration() -> None:
    ended = ListedAttempt(2, "box-a", SECOND, 4 * SECOND, "completed", None, 7, ())
    assert attempt_view(ended).duration_seconds == 3.0
    assert attempt_view(ended).end_reason is EndReason.COMPLETED
    assert attempt_view(replace(ended, ended_at=None, end_reason=None)).duration_seconds is None


def test_items_of_a_stream_become_views_of_their_kinds() -> None:
    event = EventView(seq=1, time=time(SECOND), type="message", attempt=None, data={"level": "info", "text": "a"})
    line = LogLine(line=3, time=time(SECOND), attempt=1, rank=0, stream="stdout", text="hello")
    point = MetricPoint("loss", 7, 0.5, SECOND)
    items = (
        TimelineItem(1, "message", 1, event),
        TimelineItem(2, "log", 1, line),
        TimelineItem(3, "metric", 1, point),
    )
    assert [type(view_of(item)) for item in items] == [EventView, LogLine, MetricView]


def test_an_old_answer_is_not_shown_while_a_request_waits() -> None:
    ranks: list[dict[str, Any]] = [{"rank": 0, "pid": 7, "text": "stack", "note": None}]
    answer = Answer(requested_at=SECOND, taken_at=2 * SECOND, ranks=ranks)
    assert [rank.text for rank in stacks_view(Stacks(1, None, answer)).ranks] == ["stack"]
    waiting = stacks_view(Stacks(1, 3 * SECOND, answer))
    assert (waiting.ranks, waiting.requested_at) == ([], time(3 * SECOND))


def test_a_captured_checkpoint_sends_its_own_file() -> None:
    files = [{"path": "out/a.pt", "size": 3, "sha256": "a" * 64}]
    facts = CheckpointFacts(
        *(new_id("ckpt"), 1, "a", None, False, 5, {}, None, files, None, None, CAPTURED),
        *(0, False, None, time(SECOND), ["latest"]),
    )
    view = checkpoint_view(facts)
    assert (view.size, view.sha256, view.source, view.aliases) == (3, "a" * 64, "captured", ["latest"])
    with pytest.raises(NotFound, match=r"no file 'state\.pt'"):
        checkpoint_view(replace(facts, files=[]))


@pytest.mark.parametrize(("caller", "seen"), [(ADA, True), (OPERATOR, True), (EVE, False)])
def test_a_device_tells_its_holder_and_names_a_job_to_who_may_list_it(caller: Caller, seen: bool) -> None:
    holder = HolderFacts(JOB.id, "digits", "ada", "private", JobState.RUNNING, SECOND)
    facts = WorkerFacts(new_id("wrk"), "box-a", True, True, SECOND, SECOND, [DEVICE], None, {"slot-0": holder})
    view = cluster.worker_view(facts, caller)
    (device,) = view.devices
    assert view.state == "draining"
    assert device.holder is not None
    assert (device.holder.owner, device.holder.name, device.job_id) == (
        "ada",
        "digits" if seen else None,
        JOB.id if seen else None,
    )
    assert cluster.worker_view(replace(facts, alive=False), caller).state == "lost"


def test_the_history_of_a_device_names_listed_jobs_alone() -> None:
    slots = {5: {"slot-0": Use(0.5, 1.0, 7, "job_a")}, 10: {"slot-0": Use(None, None, None, "job_b")}, 15: {}}
    listed = {"job_a": NamedJob("job_a", "digits", "ada")}
    shown = cluster.worker_history_view(WorkerHistory("wrk_1", [DEVICE], History(5, slots), listed))
    (device,) = shown.devices
    assert [(job.id, job.name, job.owner) for job in shown.jobs] == [("job_a", "digits", "ada")]
    assert (device.columns.time, device.columns.job_id) == ([5.0, 10.0], ["job_a", None])


def test_times_are_stored_to_the_microsecond() -> None:
    moment = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)
    assert time(microseconds(moment)) == moment
