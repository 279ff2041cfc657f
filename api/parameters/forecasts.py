"""Forecasts that were asked for: one at a time is made, in turns of the users, and each user has a rate."""

from functools import partial
from typing import Annotated, TypeVar

from fastapi import Depends, Query, Request

from api.auth.callers import JobReader, Principal
from api.parameters.reads import Parts, Reader, in_turns
from api.services import Services, ServicesDep
from torchyard.contract.errors import TooManyRequests, Unavailable

T = TypeVar("T")

AsksForecast = Annotated[
    bool, Query(description="also answer when the job is expected to start, and which changes would start it now")
]
"""A route's parameter."""


async def if_possible(request: Request, services: Services, caller: Principal, parts: Parts[T]) -> T | None:
    """Runs the parts of a forecast. Returns None if there are too many, or the database is away.

    Raises Interrupted if the caller leaves.
    """
    try:
        return await _forecaster(request, services, caller).run(parts, caller)
    except (TooManyRequests, Unavailable):
        return None


def _forecaster(request: Request, services: Services, caller: Principal) -> Reader:
    """Counts a forecast of the caller. Raises TooManyRequests."""
    services.forecasts.rates.take(caller.key, advice=f"{caller.name} has asked for too many forecasts")
    return Reader(request, services.forecasts.turns)


async def _reader(
    request: Request, services: ServicesDep, caller: JobReader, *, forecast: AsksForecast = False
) -> Reader:
    return _forecaster(request, services, caller) if forecast else Reader(request, services.reads)


in_turns_of_forecasts = partial(in_turns, of=Annotated[Reader, Depends(_reader)])
"""As `in_turns`, for a route with the parameter `forecast`: who sets it waits for a turn at forecasts."""
