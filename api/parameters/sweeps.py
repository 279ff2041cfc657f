"""Reads the bodies of sweeps, each of whose trials counts as a request."""

from typing import Annotated

from fastapi import Depends

from api.access.access import AccessDep
from api.access.auth import Principal, authenticate
from api.openapi import bodies
from api.parameters.bodies import Body, parsed_json
from api.services import ServicesDep
from torchyard.contract.errors import TooLarge
from torchyard.contract.sweeps import MOST_SWEEP_BYTES, SweepSpec, parse_sweep

_EXAMPLE = {
    "parameters": {"config.optimizer.lr": [0.1, 0.01, 0.001], "config.training.seed": "1..3"},
    "max_parallel": 4,
    "job": {"trainer": "image-classification", "config": {"data": {"source": "digits"}}},
}


@bodies.declares(bodies.json(SweepSpec, example=_EXAMPLE))
async def _sweep(
    services: ServicesDep, access: AccessDep, caller: Annotated[Principal, Depends(authenticate)], body: Body
) -> SweepSpec:
    """Parses a sweep. Raises TooLarge, InvalidRequest, InvalidSpec and TooManyRequests."""
    if len(body) > MOST_SWEEP_BYTES:
        raise TooLarge(f"the sweep has {len(body)} bytes: submit at most {MOST_SWEEP_BYTES}")
    sweep = await services.parses.begin(caller.key, lambda: parse_sweep(parsed_json(body)))
    more = sweep.size - 1
    if more:
        await access.requests.take(caller.key, advice=f"{caller.name} has sent too many trials", cost=more)
    return sweep


SweepBody = Annotated[SweepSpec, Depends(_sweep)]
"""A route's parameter: a sweep, whose job spec is not looked at yet."""
