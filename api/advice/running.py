"""Advice about a job that starts or runs: what keeps it from learning, and what its devices wait for."""

from datetime import timedelta
import math

from api.advice import loaders, ranks
from api.advice.facts import Facts, evidence, percent, shown
from api.advice.failure import longer_stall, steps_for_nonfinite
from torchyard.contract.advice import BUSY, IDLE, AdviceView, EvidenceView, mean, starves
from torchyard.contract.cluster.views import DeviceView
from torchyard.contract.recipes.entry import DATA_WAIT
from torchyard.contract.states import JobState
from torchyard.contract.wire.units import format_duration

_STALLED = 0.6
"""A job counts as stalled after this share of its `stall_timeout` without progress."""
_SILENT_AT_LEAST = timedelta(minutes=2)
"""Progress becomes an event once a minute at least: a shorter silence says nothing."""
_HARDLY_WAITS = 0.1
"""Up to this share of a step, the wait for the loader is not the cause."""
_ASK_FOR_STACKS = "Show the stacks of its ranks: they show where each one is."
_FEW_BYTES = 0.4
"""The share of a GPU's memory below which twice the batch fits."""


def judge(facts: Facts) -> AdviceView:
    """Returns the most urgent advice: a state that must pass, a stall, a loss that is not finite, a wait."""
    job = facts.job
    if job.state == JobState.STARTING or job.status_reason.code == "stopping":
        return _passing(facts)
    return _stalled(facts) or _nonfinite(facts) or _starved(facts) or _slowed(facts) or _idle(facts) or _healthy(facts)


def _passing(facts: Facts) -> AdviceView:
    message, used = shown(facts.job.status_reason.message), _utilization(facts)
    idles = bool(used) and mean(used) < IDLE
    return AdviceView(
        headline=f"{facts.job.state}: {message}",
        cause=f"Its devices wait for this: {message}." if idles else None,
        evidence=_utilization_evidence(facts),
    )


def _stalled(facts: Facts) -> AdviceView | None:
    silence, limit = facts.silence, facts.job.spec.stall_timeout
    if silence is None or silence < max(_STALLED * limit, _SILENT_AT_LEAST):
        return None
    quiet = format_duration(timedelta(minutes=silence // timedelta(minutes=1)))
    step = facts.job.progress.step
    return AdviceView(
        headline=f"no progress for {quiet}: after {format_duration(limit)} the attempt ends as a hang",
        cause=f"No rank has reported a step for {quiet}.",
        evidence=[evidence("event", f"the newest progress is step {step}"), *_utilization_evidence(facts)],
        steps=[
            _ASK_FOR_STACKS,
            *longer_stall(limit),
        ],
        severity="warning",
    )


def _nonfinite(facts: Facts) -> AdviceView | None:
    values = facts.job.metrics
    infinite = [key for key in ("train/loss", "train/grad_norm") if key in values and not math.isfinite(values[key])]
    if not infinite:
        return None
    skipped = " Such a step changes no weights." if facts.recipe is not None else ""
    return AdviceView(
        headline=f"{infinite[0]} is not finite",
        cause=f"The newest {' and '.join(infinite)} {'is' if len(infinite) == 1 else 'are'} not finite.{skipped}",
        evidence=[evidence("metric", f"{key} is {values[key]}") for key in infinite],
        steps=[step for step in steps_for_nonfinite(facts) if step],
        severity="warning",
    )


def _idle(facts: Facts) -> AdviceView | None:
    """Says what devices wait for that are used little, if the data loader is not the cause."""
    wait, used = facts.job.metrics.get(DATA_WAIT), _utilization(facts)
    if not used or mean(used) >= BUSY:
        return None
    if mean(used) < IDLE and facts.silence is None and not facts.job.metrics:
        return AdviceView(
            headline=f"utilisation {percent(mean(used))}: the job has reported no step yet",
            evidence=_utilization_evidence(facts),
            steps=["Read its log, or show the stacks of its ranks: they show what it prepares."],
        )
    if wait is not None and wait <= _HARDLY_WAITS and (larger := _larger_batch(facts)):
        return AdviceView(
            headline=f"utilisation {percent(mean(used))}: {percent(wait)} of each step waits for the data loader",
            evidence=[*_utilization_evidence(facts), _wait_evidence(wait), *_memory_evidence(facts)],
            steps=[f"Larger batches may use the devices better; memory is free: {larger}"],
        )
    if mean(used) < IDLE:
        return AdviceView(
            headline=f"utilisation {percent(mean(used))}: the job reports no reason",
            evidence=_utilization_evidence(facts),
            steps=[_ASK_FOR_STACKS],
            severity="warning",
        )
    return None


def _starved(facts: Facts) -> AdviceView | None:
    wait, used = facts.job.metrics.get(DATA_WAIT), _utilization(facts)
    if wait is None or not starves(wait, used):
        return None
    before = f"utilisation {percent(mean(used))}: " if used else ""
    short, step = loaders.more(facts, wait)
    return AdviceView(
        headline=f"{before}{percent(wait)} of each step waits for the data loader{f'; {short}' if short else ''}",
        cause="The data loader is slower than the devices.",
        evidence=[_wait_evidence(wait), *_utilization_evidence(facts)],
        steps=[step],
        severity="warning",
    )


def _slowed(facts: Facts) -> AdviceView | None:
    return ranks.slowest(facts) or ranks.slower_than_one(facts)


def _larger_batch(facts: Facts) -> str | None:
    """Proposes twice the micro-batch, if the memory of each device has room for it."""
    shares = [
        device.memory_used_bytes / device.memory_bytes
        for device in facts.held
        if device.memory_bytes and device.memory_used_bytes is not None
    ]
    if facts.recipe is None or not shares or max(shares) > _FEW_BYTES:
        return None
    training = facts.recipe.training
    size, accumulated = 2 * training.per_device_batch_size, training.gradient_accumulation_steps
    if accumulated % 2 == 0:
        rest = f"and gradient_accumulation_steps to {accumulated // 2}: the same global batch"
    else:
        rest = "for shorter epochs: the global batch doubles; the learning rate may need a change"
    return f"set training.per_device_batch_size to {size} {rest}."


def _healthy(facts: Facts) -> AdviceView:
    fraction, longer = facts.job.progress.fraction, ranks.more_epochs(facts)
    return AdviceView(
        headline="runs" if fraction is None else f"runs: {percent(fraction)} is done",
        evidence=_utilization_evidence(facts),
        steps=[longer] if longer else [],
    )


def _utilization(facts: Facts) -> list[float]:
    return [share for _, share in _used(facts)]


def _utilization_evidence(facts: Facts) -> list[EvidenceView]:
    return [
        evidence("utilization", f"{device.kind} {device.index}: {percent(share)} at the newest sample")
        for device, share in _used(facts)
    ]


def _used(facts: Facts) -> list[tuple[DeviceView, float]]:
    """Returns the GPUs whose use is known. A CPU slot's share is of all CPUs: a busy one has little."""
    return [
        (device, device.utilization)
        for device in facts.held
        if device.kind == "cuda" and device.utilization is not None
    ]


def _wait_evidence(wait: float) -> EvidenceView:
    return evidence("metric", f"{DATA_WAIT} is {wait:.2f}")


def _memory_evidence(facts: Facts) -> list[EvidenceView]:
    return [
        evidence(
            "memory",
            f"{device.kind} {device.index}: {device.memory_used_bytes / 2**30:.1f} of"
            f" {device.memory_bytes / 2**30:.1f} GiB are used",
        )
        for device in facts.held
        if device.memory_bytes and device.memory_used_bytes is not None
    ]
