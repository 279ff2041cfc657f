"""The order of the line: the highest priority first, then the time of submission less the owner's credit.

An owner that used little has much credit, at most `MOST`. So a job is never behind one of its priority that was
submitted later by `MOST`.
"""

from collections.abc import Iterable, Mapping, Set
from datetime import timedelta
import math

from scheduling.snapshot import Kind, OwnerUse, Waiting
from scheduling.usage import HALF_LIFE
from torchyard.contract.spec.resources import Resources
from torchyard.contract.team.roles import DEFAULT_SHARE

MOST = timedelta(hours=72)
"""The credit of an owner that used nothing."""

_US = timedelta(microseconds=1)
OwnerKind = tuple[str, Kind]


def kind_of(resources: Resources, *, any_gpu: bool) -> Kind:
    """Returns the kind of devices that a job counts as. `any_gpu`: whether a live worker has a GPU."""
    if resources.device == "auto":
        return "cuda" if any_gpu else "cpu"
    return resources.device


def credits_of(
    devices: Mapping[Kind, int],
    uses: Iterable[OwnerUse],
    needs: Mapping[OwnerKind, float],
    waiting: Set[OwnerKind],
) -> dict[OwnerKind, int]:
    """Returns the credit, in microseconds, of each owner that waits or runs, by kind of device.

    `devices`: of all live workers, by kind. `needs`: the device seconds that the owners' running jobs are believed to
    need still, of each owner that runs. `waiting`: the owners that wait, by the kind that their jobs count as.
    """
    used: dict[OwnerKind, float] = {(use.owner, use.kind): use.used_s for use in uses}
    weights: dict[OwnerKind, int] = {(use.owner, use.kind): use.weight for use in uses}
    active = {*needs, *waiting}
    totals: dict[Kind, int] = {}
    for one in sorted(active):
        totals[one[1]] = totals.get(one[1], 0) + weights.get(one, DEFAULT_SHARE)
    capacity_s = HALF_LIFE.total_seconds() / math.log(2)
    return {
        one: _credit_us(
            used.get(one, 0.0) + needs.get(one, 0.0),
            devices.get(one[1], 0) * capacity_s * weights.get(one, DEFAULT_SHARE) / max(1, totals[one[1]]),
        )
        for one in active
    }


def order_key(job: Waiting, credit_us: int) -> tuple[int, int, str]:
    """Returns the position of a job in the line: the least goes first."""
    return -job.priority, job.submitted - credit_us, job.id


def _credit_us(used_s: float, share_s: float) -> int:
    most = MOST // _US
    if share_s <= 0:
        return 0 if used_s > 0 else most
    return round(most * 2.0 ** -min(max(used_s, 0.0) / share_s, 1000.0))
