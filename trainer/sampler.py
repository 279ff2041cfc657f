"""Chooses which samples each rank trains on, in which order."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class MicroBatch:
    """One micro-batch of one rank."""

    indices: Tensor
    total: int
    """What its samples count in the loss; 0: a stand-in for a rank without samples, which joins in collectives."""

    @property
    def counts(self) -> bool:
        """Whether it is no stand-in."""
        return self.total > 0


@dataclass(frozen=True)
class Window:
    """The samples of one optimizer step."""

    samples: int
    """Samples of all ranks together."""
    total: int
    """What the samples of all ranks together count in the loss."""
    micro_batches: list[MicroBatch]
    """This rank's part of the samples."""

    def weights(self, world_size: int) -> list[float]:
        """Returns the weight of each micro-batch's mean loss.

        With these weights, the mean over the ranks of their weighted sums is the mean loss over all that counts.
        """
        return [micro_batch.total * world_size / self.total for micro_batch in self.micro_batches]


@dataclass(frozen=True)
class TrainSampler:
    """Shuffles `size` samples in every epoch and divides them into windows of `global_batch`, each sample once.

    The windows depend on the seed, the epoch, the `lengths` and `batch_norm` alone, so a run has the same ones on any
    number of ranks, and can resume at any of them. The last window of an epoch is shorter. All ranks get equally many
    micro-batches of at most `batch_size` samples: as many as the largest share needs. A rank that has too few samples
    for them stands in with a sample that counts nothing.

    With `batch_norm` no micro-batch has a single sample, but with a `batch_size` of 1: a window's samples go to as many
    ranks as can have two each, a micro-batch may have one sample more than `batch_size`, and a single sample at the end
    of an epoch joins the window before it.

    With `lengths`, the samples of a window are of like lengths, those of the last one excepted, and every rank gets
    equal shares of the short and the long ones.
    """

    size: int
    global_batch: int
    batch_size: int
    world_size: int = 1
    rank: int = 0
    seed: int = 0
    lengths: Tensor | None = None
    """The length of each sample. None: all take the same work."""
    counts: Tensor | None = None
    """What each sample counts in the loss. None: 1."""
    batch_norm: bool = False
    """Whether the model computes statistics over the samples of a micro-batch."""

    def count(self, start: int = 0) -> int:
        """Returns the number of windows from sample `start` to the end of an epoch."""
        return len(self._sizes(start))

    def windows(self, epoch: int, start: int = 0) -> list[Window]:
        """Returns the windows of `epoch` after the first `start` samples."""
        return [self._window(samples) for samples in self._order(epoch)[start:].split(self._sizes(start))]

    def _order(self, epoch: int) -> Tensor:
        """Returns all samples: in random order, or in windows of like lengths whose order is random.

        Windows are formed in each of two random halves, so that a sample meets others in every epoch.
        """
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
        order = torch.randperm(self.size, generator=generator)
        full = self.size // self.global_batch
        if self.lengths is None or not full:
            return order
        windows, tail = order[: full * self.global_batch], order[full * self.global_batch :]
        halves = windows.split(-(-full // 2) * self.global_batch)
        windows = torch.cat([self._by_length(half) for half in halves]).view(full, self.global_batch)
        return torch.cat([windows[torch.randperm(full, generator=generator)].flatten(), tail])

    def _by_length(self, samples: Tensor) -> Tensor:
        return samples if self.lengths is None else samples[self.lengths[samples].argsort(stable=True)]

    def _sizes(self, start: int) -> list[int]:
        full, tail = divmod(self.size - start, self.global_batch)
        sizes = [self.global_batch] * full
        if full and tail == 1 and self.batch_norm:
            sizes[-1] += tail
        elif tail:
            sizes.append(tail)
        return sizes

    def _window(self, samples: Tensor) -> Window:
        least, most = micro_batch_limits(self.batch_size, batch_norm=self.batch_norm)
        sharers = max(1, min(self.world_size, len(samples) // least))
        largest = -(-len(samples) // sharers)
        parts = max(1, min(-(-(largest - most + self.batch_size) // self.batch_size), largest // least))
        own = self._by_length(samples)[self.rank :: sharers] if self.rank < sharers else samples[:0]
        filled = own.tensor_split(max(1, min(parts, len(own) // least))) if len(own) else ()
        micro_batches = [MicroBatch(part, total=self._total(part)) for part in filled]
        stand_in = MicroBatch(samples[:1], total=0)
        return Window(
            samples=len(samples),
            total=self._total(samples),
            micro_batches=micro_batches + [stand_in] * (parts - len(micro_batches)),
        )

    def _total(self, samples: Tensor) -> int:
        return len(samples) if self.counts is None else int(self.counts[samples].sum())


def micro_batch_limits(batch_size: int, *, batch_norm: bool) -> tuple[int, int]:
    """Returns the least samples of a micro-batch, where a window has so many, and the most."""
    return (2, batch_size + 1) if batch_norm and batch_size > 1 else (1, batch_size)


def evaluation_batches(
    size: int, *, batch_size: int, world_size: int = 1, rank: int = 0, lengths: Tensor | None = None
) -> list[MicroBatch]:
    """Returns this rank's batches of `size` samples. Each sample counts in one batch of one rank.

    All ranks have equally many batches. The batches are the same for every number of ranks, and so is the result. With
    `lengths`, a batch has samples of like lengths, and the longest come first.
    """
    order = torch.arange(size) if lengths is None else lengths.argsort(descending=True, stable=True)
    batches = order.split(batch_size)
    own = [MicroBatch(batch, total=len(batch)) for batch in batches[rank::world_size]]
    missing = -(-len(batches) // world_size) - len(own)
    return own + [MicroBatch(batches[0][:1], total=0)] * missing
