"""Which samples each rank sees, in which order."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class TrainSampler:
    """Shuffles `size` samples anew in every epoch and deals them to the ranks in batches of equal length.

    The order depends on the seed and the epoch alone, so a run can go on anywhere in it, on any number of ranks. All
    ranks get the same number of batches, and batch k has the same length on all. The last batch of an epoch is shorter;
    it is filled up to a multiple of the ranks with samples from the order's beginning. If that leaves a single sample
    for each rank, which batch norm cannot learn from, it is dropped instead.
    """

    size: int
    batch_size: int
    world_size: int = 1
    rank: int = 0
    seed: int = 0

    @property
    def share(self) -> int:
        """Samples in one batch of all ranks together."""
        return self.batch_size * self.world_size

    def count(self, start: int = 0) -> int:
        """Batches from the sample `start` to the end of an epoch."""
        return len(self._lengths(start))

    def batches(self, epoch: int, start: int = 0) -> list[Tensor]:
        """This rank's batches of indices in `epoch`, without the first `start` samples of all ranks together."""
        order = torch.randperm(self.size, generator=torch.Generator().manual_seed(self.seed * 1_000_003 + epoch))
        batches: list[Tensor] = []
        for number, length in enumerate(self._lengths(start)):
            first = start + number * self.share + self.rank * length
            batches.append(order[torch.arange(first, first + length) % self.size])
        return batches

    def _lengths(self, start: int) -> list[int]:
        full, tail = divmod(self.size - start, self.share)
        lengths = [self.batch_size] * full
        last = -(-tail // self.world_size)
        if last > 1 or (last == 1 and (self.batch_size == 1 or self.size <= self.world_size)):
            lengths.append(last)
        return lengths


def evaluation_batches(size: int, *, batch_size: int, world_size: int = 1, rank: int = 0) -> list[Tensor]:
    """This rank's share of `size` samples, each of which is in exactly one batch of one rank.

    The batches are the same for every number of ranks, so that a model computes the same on one as on many.
    """
    return list(torch.arange(size).split(batch_size)[rank::world_size])
