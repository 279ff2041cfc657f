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

    The windows depend on the seed, the epoch and the `lengths` alone, so a run can resume at any window on any number
    of ranks. All ranks get equally many micro-batches of at most `batch_size` samples, or one more sample if a single
    one would be left. The last window of an epoch is shorter. If it had less than two samples for each rank, which are
    too few for batch norm, the window before it takes its samples.

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
        if full and 0 < tail < 2 * self.world_size:
            sizes[-1] += tail
        elif tail:
            sizes.append(tail)
        return sizes

    def _window(self, samples: Tensor) -> Window:
        smallest, more = divmod(len(samples), self.world_size)
        largest = smallest + bool(more)
        # As few as the batch size allows, and none with a single sample unless the batch size is 1.
        parts = max(1, min(-(-largest // self.batch_size), smallest // min(self.batch_size, 2)))
        own = self._by_length(samples)[self.rank :: self.world_size].tensor_split(parts)
        return Window(
            samples=len(samples),
            total=self._total(samples),
            micro_batches=[MicroBatch(part if len(part) else samples[:1], total=self._total(part)) for part in own],
        )

    def _total(self, samples: Tensor) -> int:
        return len(samples) if self.counts is None else int(self.counts[samples].sum())


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
