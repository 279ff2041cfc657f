"""Pools: partitions of clusters. A job that names one starts there alone, and the cluster decides where and when."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from torchyard.contract.spec.resources import Resources
from torchyard.contract.states import Reason

AWAY = "pool_away"
"""Reason code of a job whose pool takes no jobs now."""
AHEAD = "pool_ahead"
"""Reason code of a job of whose owner enough others wait in the pool's own queue."""
NEXT = "pool_next"
"""Reason code of a job that its pool may take."""


@dataclass(frozen=True)
class Pool:
    """A worker that is alive and stands for a pool."""

    id: str
    name: str
    kind: Literal["cuda", "cpu"]
    devices: int
    """Of all its nodes."""
    draining: bool = False
    obstacle: str | None = None
    """Why no job starts there now."""
    ahead: int = 10
    """How many jobs of one owner may wait in its own queue."""
    waiting: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many jobs were given to it and do not run yet, by owner."""

    def with_job(self, owner: str) -> "Pool":
        """Returns the pool after it was given one more job of the owner."""
        return replace(self, waiting={**self.waiting, owner: self.waiting.get(owner, 0) + 1})


def refusal(pool: Pool | None, owner: str, resources: Resources) -> Reason | None:
    """Returns why a job that names the pool is not given to it now; None if it is. A pool of None is not there."""
    if pool is None:
        return Reason(AWAY, f"{_needs(resources)}; no worker serves the pool")
    if pool.draining:
        return Reason(AWAY, f"{_needs(resources)}; {pool.name} is draining")
    if pool.obstacle is not None:
        return Reason(AWAY, f"{_needs(resources)}; {pool.obstacle}")
    if pool.waiting.get(owner, 0) >= pool.ahead:
        return Reason(AHEAD, f"{_needs(resources)}; {owner} already has {pool.ahead} jobs waiting there (the limit)")
    return None


def next_for(resources: Resources) -> Reason:
    """Returns why a job waits whose pool has not taken it by now, though nothing is in its way."""
    return Reason(NEXT, f"{_needs(resources)}; next to be submitted there")


def by_name(pools: Iterable[Pool]) -> dict[str, Pool]:
    return {pool.name: pool for pool in pools}


def _needs(resources: Resources) -> str:
    return f"needs {resources.described} of pool {resources.pool}"
