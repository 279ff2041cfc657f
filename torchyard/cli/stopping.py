"""Says what a stop of running jobs costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchyard.cli import output
from torchyard.host import terminal

if TYPE_CHECKING:
    from torchyard.contract.queue.views import PriceView, StopView

_SHOWN = 10


def price_lines(price: StopView | None) -> list[str]:
    """Returns what the stop costs, and of several jobs that run, what each does. Empty where none runs."""
    if price is None or not price.total:
        return []
    each = [f"  {_named(job)}  {job.message}" for job in price.jobs[:_SHOWN]] if price.total > 1 else []
    rest = [f"  and {price.total - _SHOWN} more"] if price.total > _SHOWN else []
    return [price.message, *each, *rest]


def _named(job: PriceView) -> str:
    if job.job_id is None:
        return output.private_job(job.owner)
    return f"{job.job_id}  {terminal.plain(job.name or '')}"
