"""What makes a running job slow, judged by the shares of time that its ranks and devices report. Pure functions."""

from collections.abc import Mapping, Sequence

from torchyard.contract.recipes.entry import DATA_WAIT, RANK_LAG, SLOWEST_RANK

JUDGED = (DATA_WAIT, RANK_LAG, SLOWEST_RANK)
"""The metrics that are judged."""

BUSY, IDLE = 0.7, 0.1
"""A utilization from which on devices are used well, and one below which they idle."""
_STARVES, _LAGS = 0.3, 0.2
"""From these shares of a step on, the wait for the loader, or for one rank, is worth a look."""


def symptoms(values: Mapping[str, float], *, ranks: int, used: Sequence[float]) -> dict[str, str]:
    """Returns what is the matter, as sentences by their causes.

    `values`: the newest of the `JUDGED` metrics, as far as there are any. `used`: the utilization of each GPU, 0…1.
    """
    found: dict[str, str] = {}
    wait = values.get(DATA_WAIT)
    if wait is not None and starves(wait, used):
        found["data_loader"] = f"{wait:.0%} of each step waits for the data loader"
    elif used and mean(used) < IDLE:
        found["low_utilization"] = f"the devices are used for {mean(used):.0%} of the time"
    if (rank := lagging_rank(values, ranks=ranks)) is not None:
        found["slow_rank"] = (
            f"rank {rank} is the slowest: another one waits for it for {values[RANK_LAG]:.0%} of each step"
        )
    return found


def starves(wait: float, used: Sequence[float]) -> bool:
    """Returns whether devices that are not used well wait for the data loader."""
    return _STARVES <= wait <= 1 and not (used and mean(used) >= BUSY)


def lagging_rank(values: Mapping[str, float], *, ranks: int) -> int | None:
    """Returns the rank that the others wait for; None if they hardly wait."""
    lag, rank = values.get(RANK_LAG), values.get(SLOWEST_RANK)
    if lag is None or rank is None or not _LAGS <= lag <= 1 or rank not in range(ranks):
        return None
    return int(rank)


def mean(shares: Sequence[float]) -> float:
    return sum(shares) / len(shares)
