"""What the service advises about a job: what is the matter with it, what shows that, and what to do."""

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from torchyard.contract.queue.views import StartsIfView
from torchyard.contract.recipes.entry import DATA_WAIT, RANK_LAG, SLOWEST_RANK
from torchyard.contract.wire.view import View

EvidenceKind = Literal["log", "rank", "memory", "event", "metric", "utilization"]
"""What shows a cause: a line of output, how a rank ended, a measure of memory, an event, a metric, or how much the
devices are used."""
Severity = Literal["info", "warning", "error"]


class EvidenceView(View):
    """A fact that shows the cause. The job may have written any text."""

    kind: EvidenceKind
    text: str
    line: int | None = Field(default=None, description="number of the log line; null if the evidence is not a log line")
    rank: int | None = None


class AdviceView(View):
    """A diagnosis of a job: the problem, its cause, the evidence, and the steps to take."""

    headline: str
    cause: str | None = Field(
        default=None,
        description="the cause in one sentence; null if nothing is wrong, the cause is unknown, or the headline has it",
    )
    evidence: list[EvidenceView] = []
    steps: list[str] = Field(default=[], description="what to do, the most promising step first")
    severity: Severity = "info"
    metric_pattern: str | None = Field(
        default=None,
        description="for a job without metrics: a pattern for `metrics.patterns` that finds a repeated number in "
        "its log",
    )
    silent_s: int | None = Field(
        default=None,
        description="seconds since a rank of the running job last reported progress; null before the first report",
    )
    starts_if: list[StartsIfView] = Field(default=[], description="changes with which the waiting job would start now")


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
            f"rank {rank} is the slowest: another rank waits for it for {values[RANK_LAG]:.0%} of each step"
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
