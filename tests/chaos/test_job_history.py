"""The checker of histories finds each kind of planted violation, and none in a correct history."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.chaos import job_history
from tests.chaos.job_history import Damage, JobHistory
from torchyard.contract.files.views import CheckpointFile, CheckpointView
from torchyard.contract.jobs.views import ErrorView, JobView, ProgressView, StatusReason
from torchyard.contract.spec.spec import parse_spec
from torchyard.contract.states import CRASH_LOOP_CAP, EndReason, JobState
from torchyard.contract.telemetry.views import EventView, MetricView

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
LOSSES = {step: 1.0 / step for step in range(1, 11)}
LATE = {"train/loss": {step: value for step, value in LOSSES.items() if step > 5}}


def event(seq: int, type: Any, *, attempt: int | None = 1, **data: Any) -> EventView:
    return EventView(seq=seq, time=BEGAN + timedelta(seconds=seq), type=type, attempt=attempt, data=data)


def state(seq: int, to: JobState, *, attempt: int | None = 1, **data: Any) -> EventView:
    return event(seq, "state", attempt=attempt, to=str(to), **data)


def checkpoint(name: str, step: int, *, attempt: int = 1, weights: str = "ab") -> CheckpointView:
    files = [
        CheckpointFile(path="state.pt", size=1, sha256=f"{name}-state"),
        CheckpointFile(path="model.safetensors", size=1, sha256=weights),
    ]
    return CheckpointView(
        id=name,
        epoch=None,
        step=step,
        attempt=attempt,
        metrics={},
        files=files,
        size=1,
        sha256=f"{name}-state",
        aliases=[],
        created_at=BEGAN,
    )


def points(steps: range, *, attempt: int) -> list[MetricView]:
    return [MetricView(key="train/loss", step=step, value=LOSSES[step], time=BEGAN, attempt=attempt) for step in steps]


JOB = JobView(
    id="job_1",
    name="chaos-digits",
    trainer="image-classification",
    state=JobState.SUCCEEDED,
    status_reason=StatusReason(code="completed", message="completed", since=BEGAN),
    spec=parse_spec({"trainer": "image-classification"}),
    owner="admin",
    priority=0,
    labels={},
    attempt=2,
    progress=ProgressView(),
    metrics={},
    devices=[],
    created_at=BEGAN,
    started_at=BEGAN,
    finished_at=BEGAN,
    version=9,
)
RESUMED = event(7, "message", attempt=2, level="info", text="resumes from checkpoint ckpt_5 (step 5)")
GOOD = JobHistory(
    job=JOB,
    events=[
        state(1, JobState.QUEUED, attempt=None),
        state(2, JobState.STARTING),
        state(3, JobState.RUNNING),
        event(4, "checkpoint", step=5),
        state(5, JobState.QUEUED, error={"code": "killed", "message": "rank 0 was killed by SIGKILL"}),
        state(6, JobState.STARTING, attempt=2),
        RESUMED,
        state(8, JobState.RUNNING, attempt=2),
        event(9, "checkpoint", attempt=2, step=10),
        state(10, JobState.SUCCEEDED, attempt=2),
    ],
    points=[*points(range(1, 8), attempt=1), *points(range(6, 11), attempt=2)],
    curve={"train/loss": LOSSES},
    checkpoints=[checkpoint("ckpt_10", 10, attempt=2), checkpoint("ckpt_5", 5)],
)
"""Killed once behind step 5, and resumed from there."""
REFERENCE = replace(GOOD, checkpoints=[checkpoint("ckpt_0", 10)])


def found(
    history: JobHistory, *damaged: Damage, ends: frozenset[JobState] = frozenset({JobState.SUCCEEDED})
) -> list[str]:
    return job_history.violations(history, ends=ends, reference=REFERENCE, damaged=damaged)


def damage(name: str, *, after: float) -> Damage:
    """So many seconds after the beginning."""
    return Damage(name, f"{name}-state", (BEGAN + timedelta(seconds=after)).timestamp())


def test_a_correct_history_has_no_violation() -> None:
    assert found(GOOD) == []


def test_a_cancelled_job_has_the_start_of_the_curve_and_a_retried_job_its_end() -> None:
    ends = frozenset({JobState.CANCELLED})
    assert found(cancelled(last=7), ends=ends) == []
    assert found(cancelled(last=4), ends=ends) == []  # a stop came before the evaluation at step 5
    assert found(cancelled(last=3), ends=ends) == [
        "job_1 (chaos-digits): train/loss has lost 1 points, such as that of step 4"
    ]
    continues = event(1, "message", attempt=None, level="info", text="continues job job_0 from step 5")
    retried = replace(GOOD, events=[continues, *GOOD.events])
    assert found(replace(retried, curve=LATE)) == []
    assert found(retried) == []  # what it was to go on from was damaged
    assert len(found(replace(GOOD, curve=LATE))) == 1


def test_a_job_fails_only_after_ten_attempts_without_a_checkpoint() -> None:
    assert [sentence for sentence in found(given_up(after=CRASH_LOOP_CAP)) if "is failed" in sentence] == []
    (sentence,) = [sentence for sentence in found(given_up(after=CRASH_LOOP_CAP - 1)) if "is failed" in sentence]
    assert sentence == "job_1 (chaos-digits): is failed, not succeeded: completed"


def test_a_gap_in_the_curve_of_a_cancelled_job_is_a_violation() -> None:
    history = cancelled(last=7)
    curve = {"train/loss": {step: value for step, value in history.curve["train/loss"].items() if step != 3}}
    assert found(replace(history, curve=curve), ends=frozenset({JobState.CANCELLED})) == [
        "job_1 (chaos-digits): train/loss has lost 1 points, such as that of step 3"
    ]


PLANTED: list[tuple[str, Callable[[JobHistory], JobHistory]]] = [
    (
        "is failed, not succeeded: too bad",
        lambda history: with_job(
            history, state=JobState.FAILED, error=ErrorView(code=EndReason.HANG, message="too bad")
        ),
    ),
    ("finished at None", lambda history: with_job(history, finished_at=None)),
    (
        "its events say ['succeeded', 'succeeded']",
        lambda history: with_events(history, state(11, JobState.SUCCEEDED)),
    ),
    ("the last one ['queued']", lambda history: with_events(history, state(11, JobState.QUEUED))),
    ("its events say no end", lambda history: replace(history, events=history.events[:-1])),
    (
        "its attempts started as [1, 2, 4]",
        lambda history: with_events(history, state(0, JobState.STARTING, attempt=4)),
    ),
    ("its attempts started as [1, 2], and it counts 3", lambda history: with_job(history, attempt=3)),
    (
        "1 points are stored more than once, such as ('train/loss', 2, 6)",
        lambda history: replace(history, points=[*history.points, *points(range(6, 7), attempt=2)]),
    ),
    ("train/loss has lost 1 points, such as that of step 6", lambda history: with_losses(history, {}, without=6)),
    ("train/loss has lost 10 points, such as that of step 1", lambda history: replace(history, curve={})),
    (
        "train/loss has 1 points too many, such as that of step 11",
        lambda history: with_losses(history, {11: 0.1}),
    ),
    (
        "train/loss differs at 1 steps, first at 4: 0.2500000000000001, not 0.25",
        lambda history: with_losses(history, {4: 0.2500000000000001}),
    ),
    (
        "its last checkpoint (step, weights) is (10, 'cd'), not (10, 'ab')",
        lambda history: replace(history, checkpoints=[checkpoint("ckpt_10", 10, attempt=2, weights="cd")]),
    ),
    ("its last checkpoint (step, weights) is None", lambda history: replace(history, checkpoints=[])),
    ("checkpoint ckpt_5 is not what is listed", lambda history: replace(history, damaged_ids=frozenset({"ckpt_5"}))),
]


@pytest.mark.parametrize(("expected", "plant"), PLANTED)
def test_planted_violations_are_found(expected: str, plant: Callable[[JobHistory], JobHistory]) -> None:
    sentences = found(plant(GOOD))
    assert any(expected in sentence for sentence in sentences), sentences
    assert all(sentence.startswith("job_1 (chaos-digits): ") for sentence in sentences)


def test_a_damaged_checkpoint_may_exist_but_must_not_be_used() -> None:
    damaged = replace(GOOD, damaged_ids=frozenset({"ckpt_5"}))
    assert found(damaged, damage("ckpt_5", after=7.5)) == []
    assert found(damaged, damage("ckpt_5", after=4.5)) == [
        "job_1 (chaos-digits): was resumed from checkpoint ckpt_5, which was damaged",
        "job_1 (chaos-digits): nobody said that checkpoint ckpt_5, which was damaged, was skipped",
    ]


def test_a_damaged_checkpoint_is_skipped_with_a_message() -> None:
    older = event(7, "message", attempt=2, level="info", text="resumes from checkpoint ckpt_2 (step 2)")
    skipped = event(6, "message", attempt=2, level="warning", text="1 damaged checkpoints were skipped: ckpt_5")
    silent = replace(GOOD, events=[older if each is RESUMED else each for each in GOOD.events])
    aloud = replace(silent, events=[*silent.events[:6], skipped, *silent.events[6:]])
    assert found(aloud, damage("ckpt_5", after=4.5)) == []
    assert found(silent, damage("ckpt_5", after=4.5)) == [
        "job_1 (chaos-digits): nobody said that checkpoint ckpt_5, which was damaged, was skipped"
    ]


def test_two_attempts_may_overlap_only_after_the_first_lease_has_expired() -> None:
    assert job_history.overlapping(GOOD, 1, 2) == ["job_1: attempt 2 ran beside attempt 1, whose lease had not expired"]
    lost = {"code": "worker_lost", "message": "the lease of worker box expired"}
    events = [state(5, JobState.QUEUED, error=lost) if each.seq == 5 else each for each in GOOD.events]
    assert job_history.overlapping(replace(GOOD, events=events), 1, 2) == []


def given_up(*, after: int) -> JobHistory:
    """Preempted once, then lost so often."""
    codes = [EndReason.PREEMPTED, *[EndReason.WORKER_LOST] * after]
    events = [
        state(
            10 + number,
            JobState.QUEUED if number < len(codes) else JobState.FAILED,
            attempt=1 + number,
            error={"code": str(code), "message": "it ended"},
        )
        for number, code in enumerate(codes, start=1)
    ]
    job = JOB.model_copy(update={"state": JobState.FAILED, "attempt": 1 + len(codes)})
    return replace(GOOD, job=job, events=[*GOOD.events[:5], *events])


def cancelled(*, last: int) -> JobHistory:
    curve = {"train/loss": {step: value for step, value in LOSSES.items() if step <= last}}
    events = [*GOOD.events[:-1], state(10, JobState.CANCELLED, attempt=2)]
    history = replace(GOOD, curve=curve, events=events, checkpoints=[checkpoint("ckpt_5", 5)])
    return with_job(history, state=JobState.CANCELLED)


def with_job(history: JobHistory, **values: Any) -> JobHistory:
    return replace(history, job=history.job.model_copy(update=values))


def with_events(history: JobHistory, *more: EventView) -> JobHistory:
    return replace(history, events=[*history.events, *more])


def with_losses(history: JobHistory, losses: Mapping[int, float], *, without: int | None = None) -> JobHistory:
    changed = {**LOSSES, **losses}
    return replace(history, curve={"train/loss": {step: value for step, value in changed.items() if step != without}})
