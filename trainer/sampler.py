"""Which samples each rank sees, in which order."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Share:
    """One micro-batch of one rank."""

    indices: Tensor
    counts: bool = True
    """False for a stand-in: the rank has no sample left, but must take part in what all ranks do together."""


@dataclass(frozen=True)
class Window:
    """The samples of one optimizer step: how many all ranks have together, and this rank's micro-batches of them."""

    samples: int
    shares: list[Share]

    def weights(self, world_size: int) -> list[float]:
        """Of each micro-batch's mean loss, so that the mean of the ranks' sums is the mean over the samples."""
        return [len(share.indices) * world_size / self.samples if share.counts else 0.0 for share in self.shares]


@dataclass(frozen=True)
class TrainSampler:
    """Shuffles `size` samples anew in every epoch and deals them in windows of `global_batch`, each sample once.

    The windows depend on the seed and the epoch alone, so a run can go on at any of them, on any number of ranks. All
    ranks get equally many micro-batches, of `batch_size` samples at most, or one more where a single sample would be
    left. An epoch's last window is shorter; where it would leave less than two samples for each rank, which batch norm
    cannot learn from, the one before takes them.
    """

    size: int
    global_batch: int
    batch_size: int
    world_size: int = 1
    rank: int = 0
    seed: int = 0

    def count(self, start: int = 0) -> int:
        """Windows from the sample `start` to the end of an epoch."""
        return len(self._lengths(start))

    def windows(self, epoch: int, start: int = 0) -> list[Window]:
        """The windows of `epoch`, without the first `start` samples."""
        order = torch.randperm(self.size, generator=torch.Generator().manual_seed(self.seed * 1_000_003 + epoch))
        return [self._window(samples) for samples in order[start:].split(self._lengths(start))]

    def _lengths(self, start: int) -> list[int]:
        full, tail = divmod(self.size - start, self.global_batch)
        lengths = [self.global_batch] * full
        if full and 0 < tail < 2 * self.world_size:
            lengths[-1] += tail
        elif tail:
            lengths.append(tail)
        return lengths

    def _window(self, samples: Tensor) -> Window:
        smallest, more = divmod(len(samples), self.world_size)
        largest = smallest + bool(more)
        # As few as the batch size allows, but none with a single sample unless it asks for that.
        parts = max(1, min(-(-largest // self.batch_size), smallest // min(self.batch_size, 2)))
        own = samples.tensor_split(self.world_size)[self.rank].tensor_split(parts)
        return Window(len(samples), [Share(part) if len(part) else Share(samples[:1], counts=False) for part in own])


def evaluation_shares(size: int, *, batch_size: int, world_size: int = 1, rank: int = 0) -> list[Share]:
    """This rank's part of `size` samples: each counts in exactly one batch of one rank, and all have equally many.

    The batches are the same for every number of ranks, so that a model computes the same on one as on many.
    """
    batches = torch.arange(size).split(batch_size)
    own = [Share(batch) for batch in batches[rank::world_size]]
    missing = -(-len(batches) // world_size) - len(own)
    return own + [Share(batches[0][:1], counts=False)] * missing
