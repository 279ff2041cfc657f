"""Limits the forecasts that users ask for. Call it in the event loop."""

from dataclasses import dataclass, field
from functools import partial

from api.limits.rates import Rates
from api.limits.turns import Turns

THREADS = 1
"""So that one forecast at a time is made. Users take turns at it."""
PATIENCE_S = 2.0
"""Longest wait for the first turn."""
_PER_SECOND, _AT_ONCE = 2.0, 20.0
"""Of one user. The first is an average."""


@dataclass(frozen=True)
class ForecastLimits:
    """The thread of forecasts, which are much work for the processor, and how often each user may ask for one."""

    turns: Turns = field(default_factory=partial(Turns, per_user=THREADS, threads=THREADS, patience_s=PATIENCE_S))
    rates: Rates = field(default_factory=partial(Rates, per_second=_PER_SECOND, burst=_AT_ONCE))
