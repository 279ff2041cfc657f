"""Reads the history of a job over REST, and finds violations in it."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
import re
import tempfile

from torchyard.client import Client
from torchyard.contract.errors import NotFound, ServerError
from torchyard.contract.files.views import CheckpointView
from torchyard.contract.jobs.views import JobView
from torchyard.contract.states import CRASH_LOOP_CAP, EndReason, JobState
from torchyard.contract.telemetry.views import EventView, MetricView

_WEIGHTS = "model.safetensors"
_TIMING = re.compile(r"train/\w+_per_second|train/mfu|(?:time|wait|memory_gib)/.*")
"""Series that may differ between two runs."""
_OF_WHOLE_EPOCHS = "time/epoch"
"""This one has no point of an epoch that was interrupted."""
_MOST_POINTS = 100_000
_CONTINUES = re.compile(r"continues job \S+ from step ([0-9]+)")


@dataclass(frozen=True)
class Damage:
    """A checkpoint whose bytes were overwritten, and when, in seconds since the epoch."""

    checkpoint_id: str
    sha256: str
    at: float


@dataclass(frozen=True)
class JobHistory:
    """All that REST shows of a job."""

    job: JobView
    events: Sequence[EventView]
    points: Sequence[MetricView]
    """All stored points of all attempts."""
    curve: Mapping[str, Mapping[int, float]]
    """Each series by step as users see it, where later attempts replace earlier ones."""
    checkpoints: Sequence[CheckpointView]
    """Newest first."""
    damaged_ids: frozenset[str] = field(default_factory=frozenset[str])
    """Ids of checkpoints whose bytes differ from their digests."""


def read(client: Client, job_id: str) -> JobHistory:
    """Reads everything about the job and downloads each checkpoint. Raises TorchyardError."""
    series = client.jobs.metrics(job_id, max_points=_MOST_POINTS).data
    checkpoints = list(client.jobs.checkpoints(job_id))
    points = [item.view for item in client.jobs.stream(job_id, only=["metric"]) if isinstance(item.view, MetricView)]
    return JobHistory(
        job=client.get(job_id).view,
        events=list(client.jobs.events(job_id)),
        points=points,
        curve={one.key: {point.step: point.value for point in one.points} for one in series},
        checkpoints=checkpoints,
        damaged_ids=frozenset(checkpoint.id for checkpoint in checkpoints if not _is_sound(client, job_id, checkpoint)),
    )


def violations(
    history: JobHistory, *, ends: Collection[JobState], reference: JobHistory | None, damaged: Sequence[Damage]
) -> list[str]:
    """Returns a sentence for each violation, with the job's id.

    `ends`: allowed final states; `reference`: the same job without faults; `damaged`: checkpoints of all jobs.
    """
    found = [
        *_wrong_end(history, ends),
        *_wrong_attempts(history),
        *_doubled(history),
        *(_wrong_curve(history, reference) if reference is not None else []),
        *(_wrong_weights(history, reference) if reference is not None else []),
        *_wrong_bytes(history, damaged),
        *_used_damaged(history, damaged),
    ]
    return [f"{history.job.id} ({history.job.name}): {sentence}" for sentence in found]


def overlapping(history: JobHistory, earlier: int, later: int) -> list[str]:
    """Returns a sentence if two attempts overlapped although the lease of the first had not expired."""
    for event in history.events:
        error = event.data.get("error") or {}
        if event.attempt == earlier and error.get("code") == "worker_lost" and "lease" in str(error.get("message")):
            return []
    return [f"{history.job.id}: attempt {later} ran beside attempt {earlier}, whose lease had not expired"]


def _wrong_end(history: JobHistory, ends: Collection[JobState]) -> list[str]:
    job, found = history.job, list[str]()
    if job.state not in ends and not _is_given_up(history):
        why = job.error.message if job.error is not None else job.status_reason.message
        found.append(f"is {job.state}, not {' or '.join(sorted(ends))}: {why}")
    if (job.finished_at is not None) != job.state.terminal:
        found.append(f"is {job.state}, and finished at {job.finished_at}")
    moves = [event.data["to"] for event in history.events if event.type == "state"]
    terminal = [state for state in moves if JobState(state).terminal]
    if len(terminal) != 1 or moves[-1] != terminal[0] or terminal[0] != job.state:
        found.append(f"is {job.state}, and its events say {terminal or 'no end'}; the last one {moves[-1:]}")
    return found


def _is_given_up(history: JobHistory) -> bool:
    """Returns whether enough attempts in a row failed without a checkpoint to fail the job."""
    published_checkpoint = {event.attempt for event in history.events if event.type == "checkpoint"}
    attempts_without_checkpoint = 0
    for event in reversed(history.events):
        if event.attempt in published_checkpoint:
            break
        error = event.data.get("error") or {}
        attempts_without_checkpoint += error.get("code") not in {None, EndReason.PREEMPTED, EndReason.PAUSED}
    return history.job.state is JobState.FAILED and attempts_without_checkpoint >= CRASH_LOOP_CAP


def _wrong_attempts(history: JobHistory) -> list[str]:
    starts = [
        event.attempt for event in history.events if event.type == "state" and event.data["to"] == JobState.STARTING
    ]
    if starts == list(range(1, history.job.attempt + 1)):
        return []
    return [f"its attempts started as {starts}, and it counts {history.job.attempt}"]


def _doubled(history: JobHistory) -> list[str]:
    counted = Counter((item.key, item.attempt, item.step) for item in history.points)
    doubled = [place for place, count in counted.items() if count > 1]
    return [f"{len(doubled)} points are stored more than once, such as {doubled[0]}"] if doubled else []


def _wrong_curve(history: JobHistory, reference: JobHistory) -> list[str]:
    """A stopped job has the start of the curve, a retried job its end. Values must be bit-equal."""
    first, found = _begins_behind(history), list[str]()
    succeeded = history.job.state is JobState.SUCCEEDED
    saved = max((checkpoint.step for checkpoint in history.checkpoints), default=0)
    for key, whole in reference.curve.items():
        ours = history.curve.get(key, {})
        # At the step itself, a stop may have come before the evaluation.
        last = max(whole) if succeeded else max(saved - 1, *ours, first)
        expected = {step: value for step, value in whole.items() if first < step <= last}
        if key != _OF_WHOLE_EPOCHS and (missing := sorted(expected.keys() - ours.keys())):
            found.append(f"{key} has lost {len(missing)} points, such as that of step {missing[0]}")
        if extra := sorted(ours.keys() - expected.keys()):
            found.append(f"{key} has {len(extra)} points too many, such as that of step {extra[0]}")
        other = [step for step in sorted(expected.keys() & ours.keys()) if ours[step] != expected[step]]
        if other and not _TIMING.fullmatch(key):
            step = other[0]
            found.append(
                f"{key} differs at {len(other)} steps, first at {step}: {ours[step]!r}, not {expected[step]!r}"
            )
    return found


def _begins_behind(history: JobHistory) -> int:
    """Returns the step from which a retried job resumed; 0 for other jobs, and if that checkpoint was damaged."""
    texts = [str(event.data["text"]) for event in history.events if event.type == "message"]
    told = [int(match[1]) for match in map(_CONTINUES.match, texts) if match is not None]
    after = max(told, default=0)
    anew = any(step <= after for series in history.curve.values() for step in series)
    return 0 if anew else after


def _wrong_weights(history: JobHistory, reference: JobHistory) -> list[str]:
    if history.job.state is not JobState.SUCCEEDED:
        return []
    ours, theirs = _weights(history), _weights(reference)
    return [] if ours == theirs else [f"its last checkpoint (step, weights) is {ours}, not {theirs}"]


def _weights(history: JobHistory) -> tuple[int, str | None] | None:
    if not history.checkpoints:
        return None
    newest = history.checkpoints[0]
    return newest.step, next((file.sha256 for file in newest.files if file.path == _WEIGHTS), None)


def _wrong_bytes(history: JobHistory, damaged: Sequence[Damage]) -> list[str]:
    # The same bytes are stored once, whatever lists them: a retried job begins with the other one's.
    expected = {damage.sha256 for damage in damaged}
    damaged_ids = [
        item.id for item in history.checkpoints if item.id in history.damaged_ids and item.sha256 not in expected
    ]
    return [f"checkpoint {name} is not what is listed" for name in damaged_ids]


def _used_damaged(history: JobHistory, damaged: Sequence[Damage]) -> list[str]:
    """A damaged checkpoint that was the newest at the start of an attempt must have been skipped with a message."""
    found: list[str] = []
    for damage in damaged:
        name = damage.checkpoint_id
        later = [event for event in history.events if event.time.timestamp() > damage.at]
        texts = [str(event.data.get("text")) for event in later if event.type == "message"]
        if any(text.startswith(f"resumes from checkpoint {name} ") for text in texts):
            found.append(f"was resumed from checkpoint {name}, which was damaged")
        if _is_needed(history, name, later) and not any("skipped" in text and name in text for text in texts):
            found.append(f"nobody said that checkpoint {name}, which was damaged, was skipped")
    return found


def _is_needed(history: JobHistory, name: str, later: Sequence[EventView]) -> bool:
    """Returns whether an attempt chose its checkpoint before a newer one was listed."""
    if name not in {checkpoint.id for checkpoint in history.checkpoints}:
        return False  # of another job, or removed for newer ones
    for event in later:
        if event.type == "checkpoint":
            return False
        if event.type == "message" and str(event.data.get("text")).startswith("resumes from checkpoint "):
            return True
    return False


def _is_sound(client: Client, job_id: str, checkpoint: CheckpointView) -> bool:
    """Returns whether each file has its listed digest, which the client checks."""
    with tempfile.TemporaryDirectory(prefix="torchyard-chaos-") as folder:
        try:
            for file in checkpoint.files:
                client.jobs.download(job_id, checkpoint.id, file=file.path, to=Path(folder) / Path(file.path).name)
        except (ServerError, NotFound):
            return False
    return True
