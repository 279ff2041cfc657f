"""The largest batches that a remote worker sends of an attempt, for `bench.costs.cases`."""

from collections.abc import Callable

from store.worker import checks, wire
from store.worker.records import Batch, Claim, MetricPoint, NewLines

_CLAIM = Claim(1, f"job_{'0' * 32}", 1, f"wrk_{'0' * 32}")
_BYTES = 4 << 20


def of_points() -> Callable[[], object]:
    """A batch of short points, which cost most for their bytes."""
    points = [MetricPoint("a", step, 0.5, 1) for step in range(_BYTES // 44)]
    return _reading(Batch(offsets={}, points=points))


def of_lines() -> Callable[[], object]:
    """A batch of lines of 80 characters."""
    return _reading(Batch(offsets={}, lines=[NewLines(0, "stdout", ["x" * 80] * (_BYTES // 83))]))


def _reading(batch: Batch) -> Callable[[], object]:
    sent = wire.AppendAsked(claim=_CLAIM, batch=batch, seq=0).model_dump_json().encode()
    return lambda: checks.check_batch(wire.AppendAsked.model_validate_json(sent).batch)
