"""The views of estimates of when waiting jobs start."""

from api.present.times import time, time_or_none
from store.queue.estimates_facts import EstimateFacts
from torchyard.contract.views.estimates import EstimateView


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
