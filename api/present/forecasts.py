"""The views of when a job starts, of what would become of it, and of what would start it now."""

from collections.abc import Sequence

from api.present.times import time, time_or_none
from scheduling.alternatives import Alternative
from store.jobs.prospects import Forecast
from store.jobs.submission import Prospect
from store.queue.estimates_facts import EstimateFacts
from torchyard.contract.jobs.submissions import ProspectView
from torchyard.contract.queue.views import EstimateView, StartsIfView


def prospect(facts: Prospect, forecast: Forecast | None = None) -> ProspectView:
    """Returns the view of what would become of a job, or becomes of it. `forecast`: if it was asked for."""
    foreseen, reason = forecast or Forecast(), facts.reason
    return ProspectView(
        fits=reason is None,
        code=None if reason is None else reason.code,
        message=None if reason is None else reason.message,
        position=facts.position,
        estimate=estimate_or_none(foreseen.estimate),
        later_than=time_or_none(foreseen.later_than),
        starts_if=starts_if(foreseen.alternatives),
    )


def starts_if(alternatives: Sequence[Alternative]) -> list[StartsIfView]:
    """Returns the view of changes with which a job would start now."""
    return [StartsIfView(change=one.change, value=one.value, message=_message(one)) for one in alternatives]


def estimate(facts: EstimateFacts) -> EstimateView:
    """Returns the view of an estimate."""
    return EstimateView(
        expected=time_or_none(facts.expected),
        low=time_or_none(facts.low),
        high=time_or_none(facts.high),
        made_at=time(facts.made_at),
        held=facts.held,
        of=facts.of,
    )


def estimate_or_none(facts: EstimateFacts | None) -> EstimateView | None:
    """Returns the view of an estimate, if there is one."""
    return None if facts is None else estimate(facts)


def _message(one: Alternative) -> str:
    match one.change:
        case "time_limit":
            return f"with `time_limit` ≤ {one.value}"
        case "devices":
            return f"on {one.value} device{'' if one.value == '1' else 's'}"
        case "preemptible":
            return "if preemptible"
