"""The speed of a run between two log lines, and what each rank has at each: its wait for data, its peak memory."""

from collections.abc import Sequence
import math
import time
from typing import NamedTuple

from torchyard.contract.recipes.entry import DATA_WAIT, RANK_LAG, RANK_WAIT, SLOWEST_RANK
from trainer.card import Card, peak_memory
from trainer.data.loading import TOKENS, WAITED
from trainer.peaks import peak_flops, utilisation
from trainer.world import World

EACH_RANK = 8
"""Up to so many ranks each has its own curve. Of more, there are the least and the greatest value."""


class Own(NamedTuple):
    """The numbers of one rank since the last log line."""

    data_wait: float
    """Seconds in which it waited for its data loader: 0 for data in memory. It is the host's time. A GPU may still
    compute meanwhile what the host has queued before, so it may idle for less than that."""
    tokens: float
    memory: float
    """The peak bytes so far."""
    rank_wait: float = math.nan
    """Seconds from its own last gradient to the end of the exchange with the other ranks; NaN: not measured."""


class Pace:
    """Measures between `restart` and each `measure`. Every rank has one; `card`: what is known before training."""

    def __init__(self, world: World, *, card: Card) -> None:
        self.samples, self.seconds = 0, 0.0
        """What was measured in this attempt, up to the last `measure`."""
        self._device, self._size = world.device, world.size
        peak = peak_flops(card.device, precision=card.precision)
        self._flops, self._peak = card.flops_per_sample, peak and peak * world.size
        self.restart(whole_epoch=False)

    def restart(self, *, whole_epoch: bool) -> None:
        """Restarts the clocks: an epoch begins, or goes on. `whole_epoch`: all of it is about to be trained."""
        self._clock, self._waited, self._tokens = time.monotonic(), WAITED.seconds, TOKENS.count
        self._epoch = 0.0 if whole_epoch else None

    def own(self, rank_wait: float) -> Own:
        """Returns the numbers of this rank since the last call. Does not wait for the device."""
        waited, self._waited = WAITED.seconds - self._waited, WAITED.seconds
        tokens, self._tokens = TOKENS.count - self._tokens, TOKENS.count
        return Own(data_wait=waited, tokens=tokens, memory=peak_memory(self._device), rank_wait=rank_wait)

    def measure(self, ranks: Sequence[Own], *, samples: int) -> tuple[float, dict[str, float]]:
        """Returns the samples a second of all ranks, and metrics that nothing monitors, of the time since the last
        call.

        `ranks`: what each rank's `own` returned. `samples`: those of all ranks in this time.
        """
        now = time.monotonic()
        seconds = max(now - self._clock, 1e-9)
        self._clock = now
        self.samples += samples
        self.seconds += seconds
        self._epoch = None if self._epoch is None else self._epoch + seconds
        used = utilisation(flops=self._flops, samples_per_second=samples / seconds, peak=self._peak)
        tokens = sum(own.tokens for own in ranks)
        return samples / seconds, {
            DATA_WAIT: min(sum(own.data_wait for own in ranks) / self._size / seconds, 1.0),
            **({"train/tokens_per_second": tokens / seconds} if tokens else {}),
            **({} if used is None else {"train/mfu": used}),
            **of_ranks("memory_gib", [own.memory / 2**30 for own in ranks]),
            **_waits([min(own.rank_wait / seconds, 1.0) for own in ranks]),
        }

    def epoch_metrics(self) -> dict[str, float]:
        """Returns the seconds of the epoch that has ended, if this attempt has trained all of it."""
        return {} if self._epoch is None else {"time/epoch": self._epoch}


def of_ranks(name: str, values: Sequence[float]) -> dict[str, float]:
    """Names the value of each rank: `name/rank0`, …; `name/min` and `name/max` of more than EACH_RANK ranks."""
    if len(values) <= EACH_RANK:
        return {f"{name}/rank{rank}": value for rank, value in enumerate(values)}
    return {f"{name}/min": min(values), f"{name}/max": max(values)}


def _waits(shares: Sequence[float]) -> dict[str, float]:
    """Returns the metrics of each rank's share of the time in exchanges; none if one is not measured."""
    if not shares or any(math.isnan(share) for share in shares):
        return {}
    return {
        RANK_WAIT: sum(shares) / len(shares),
        RANK_LAG: max(shares) - min(shares),
        SLOWEST_RANK: float(shares.index(min(shares))),
        **of_ranks("wait", shares),
    }
