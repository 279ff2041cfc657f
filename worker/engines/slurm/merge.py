"""Decides how an attempt over several nodes ended, by the reports of its nodes: a pure function."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.states import EndReason
from worker.engines.local.supervisor.verdict import blames_a_peer

BY_THEMSELVES = {EndReason.COMPLETED, EndReason.PAUSED}
"""How a part may end that nobody has stopped, without a failure."""
_STACKS_LENGTH = 96_000


@dataclass(frozen=True, kw_only=True)
class Part:
    """How one node's part ended."""

    node: int
    host: str
    report: ExitReport
    finished: bool = False
    """Whether all its programs have done all their work."""
    lost: bool = False
    """Whether nobody knows how, as the node was lost."""


def merge(parts: Sequence[Part], *, asked: EndReason | None, consequences: Collection[int] = ()) -> ExitReport:
    """Returns the report of the attempt.

    `parts`: in the order in which they were known. `asked`: the stop that was asked for. `consequences`: the nodes that
    were stopped because another one had failed.
    """
    if all(part.report.reason is EndReason.COMPLETED for part in parts):
        finished = all(part.finished for part in parts) and asked is not EndReason.CANCELLED
        if asked is None or finished:
            return ExitReport(reason=EndReason.COMPLETED)
    if asked is not None:
        return _stopped(parts, asked)
    if all(part.report.reason in BY_THEMSELVES for part in parts):
        return next(part.report for part in parts if part.report.reason is EndReason.PAUSED)
    failed = [part for part in parts if part.report.reason not in BY_THEMSELVES]
    cause = min(failed, key=lambda part: _distance(part, consequences))
    report = _named(cause, alone=len(parts) == 1)
    if report.reason is EndReason.HANG and len(parts) > 1:
        return replace(report, traceback=_stacks(parts))
    return report


def _distance(part: Part, consequences: Collection[int]) -> tuple[bool, bool, bool]:
    """Returns how far from the cause a failure is: one that was caused by another one is far."""
    return part.node in consequences, not part.lost and blames_a_peer(part.report), part.lost


def _stopped(parts: Sequence[Part], asked: EndReason) -> ExitReport:
    """Returns the report of an attempt that was asked to stop, by the node that has most to say."""
    asked_parts = [part for part in parts if part.report.reason is asked]
    best = max(
        asked_parts, key=lambda part: (part.report.traceback is not None, len(part.report.message)), default=None
    )
    if best is None:
        return ExitReport(reason=asked, message="the attempt was asked to stop")
    return replace(best.report, reason=asked, exit_code=None)


def _named(part: Part, *, alone: bool) -> ExitReport:
    if alone or part.lost:
        return part.report
    message = part.report.message or str(part.report.reason)
    return replace(part.report, message=f"node {part.node} ({part.host}): {message}")


def _stacks(parts: Sequence[Part]) -> str:
    """Returns the stacks of all nodes, in their order."""
    texts = [part.report.traceback or "" for part in sorted(parts, key=lambda part: part.node)]
    share = _STACKS_LENGTH // len(texts)
    return "\n".join(text[:share] for text in texts if text)
