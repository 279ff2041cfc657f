"""Says what becomes of a job that waits: its place, when it is expected to start, and what would start it now."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from torchyard.cli.estimates import sentence
from torchyard.contract.queue.views import EstimateView
from torchyard.host import terminal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchyard.contract.jobs.submissions import ProspectView
    from torchyard.contract.queue.views import StartsIfView


def of_submitted(found: ProspectView | None) -> list[str]:
    """Returns lines about a job that was just submitted; none if it starts at once, or nobody can tell."""
    return [] if found is None or found.fits else _waiting(found, starts="starts")


def of_spec(found: ProspectView) -> list[str]:
    """Returns lines about what would become of a job."""
    return ["Starts now."] if found.fits else _waiting(found, starts="would start")


def _waiting(found: ProspectView, *, starts: str) -> list[str]:
    when = _when(found)
    place = "" if found.position is None else f"position {found.position} in the queue: "
    # Whoever sees when it starts need not read what it waits for: `why` has that.
    said = f"{place}{starts} {when}" if when else f"{place}{terminal.plain(found.message or '')}"
    lines = [f"{said[:1].upper()}{said[1:]}."]
    return [*lines, f"Starts now {any_of(found.starts_if)}."] if found.starts_if else lines


def any_of(changes: Sequence[StartsIfView]) -> str:
    """Returns `with time_limit ≤ 2h, on 2 devices, or if preemptible`."""
    *others, last = [terminal.plain(one.message) for one in changes]
    return f"{', '.join(others)}{',' if len(others) > 1 else ''} or {last}" if others else last


def _when(found: ProspectView) -> str:
    estimate = found.estimate
    if estimate is None and found.later_than is not None:
        now = datetime.now(UTC)
        estimate = EstimateView(expected=None, low=found.later_than, high=None, made_at=now, held=0, of=0)
    return "" if estimate is None else sentence(estimate)
