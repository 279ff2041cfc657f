"""Reads the bodies of sweeps and of what is added to them. Each trial counts as a request."""

from functools import partial
from typing import Annotated

from fastapi import Depends

from api.access.access import Access, AccessDep
from api.access.auth import Principal, authenticate
from api.openapi import bodies
from api.parameters.bodies import Body
from api.services import ServicesDep
from torchyard.contract.errors import TooLarge
from torchyard.contract.sweeps import MOST_POINTS, MOST_SWEEP_BYTES, SweepExtension, SweepSpec

_EXAMPLE = {
    "parameters": {"config.optimizer.lr": [0.1, 0.01, 0.001], "config.training.seed": "1..3"},
    "max_parallel": 4,
    "job": {"trainer": "image-classification", "config": {"data": {"source": "digits"}}},
}


@bodies.declares(bodies.json(SweepSpec, example=_EXAMPLE))
async def _sweep(
    services: ServicesDep, access: AccessDep, caller: Annotated[Principal, Depends(authenticate)], body: Body
) -> SweepSpec:
    """Parses a sweep. Raises TooLarge, as `Parser` does, and TooManyRequests."""
    if len(body) > MOST_SWEEP_BYTES:
        raise TooLarge(f"the sweep has {len(body)} bytes: submit at most {MOST_SWEEP_BYTES}")
    sweep = await services.parses_of(body).begin(caller.key, partial(services.parser.sweep, body))
    await _count(access, caller, sweep.size)
    return sweep


@bodies.declares(bodies.json(SweepExtension, example={"trials": 20}))
async def _extension(
    services: ServicesDep, access: AccessDep, caller: Annotated[Principal, Depends(authenticate)], body: Body
) -> SweepExtension:
    """Parses what is added to a sweep. Raises as `Parser` does, and TooManyRequests."""
    more = await services.parses_of(body).begin(caller.key, partial(services.parser.extension, body))
    await _count(access, caller, min(more.size, MOST_POINTS))
    return more


async def _count(access: Access, caller: Principal, trials: int) -> None:
    if trials > 1:  # the request itself is one
        await access.requests.take(caller.key, advice=f"{caller.name} has sent too many trials", cost=trials - 1)


SweepBody = Annotated[SweepSpec, Depends(_sweep)]
"""A route's parameter: a sweep, whose job spec is not looked at yet."""
ExtensionBody = Annotated[SweepExtension, Depends(_extension)]
"""A route's parameter: what is added to a sweep."""
