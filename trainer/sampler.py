"""Chooses which samples each rank trains on, in which order, and what one optimizer step takes of them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from trainer.data.batch import Batch


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
class StepSamples:
    """What one optimizer step takes of the data."""

    samples: int
    """Samples of all ranks together."""
    total: int
    """What the samples of all ranks together count in the loss."""
    micro_batches: list[MicroBatch]
    """This rank's part of the samples."""
    batches: Iterable[Batch] = ()
    """The batch of each micro-batch, which is loaded when it is taken. A plan has none."""

    def weights(self, world_size: int) -> list[float]:
        """Returns the weight of each micro-batch's mean loss; 0: a stand-in.

        With these weights, the mean over the ranks of their weighted sums is the mean loss over all that counts.
        """
        return [micro_batch.total * world_size / self.total for micro_batch in self.micro_batches]

    def weighted(self, world_size: int) -> Iterator[tuple[Batch, float, bool]]:
        """Yields each batch with its weight, and whether it is the last one."""
        last = len(self.micro_batches) - 1
        for index, (batch, weight) in enumerate(zip(self.batches, self.weights(world_size), strict=True)):
            yield batch, weight, index == last


@dataclass(frozen=True)
class TrainSampler:
    """Shuffles `size` samples in every epoch and divides them into steps of `global_batch`, each sample once.

    The steps depend on the seed, the epoch, the `lengths` and `batch_norm` alone, so a run has the same ones on any
    number of ranks, and can resume at any of them. The last step of an epoch is shorter. All ranks get equally many
    micro-batches of at most `batch_size` samples: as many as the largest share needs. A rank that has too few samples
    for them stands in with a sample that counts nothing.

    With `batch_norm` no micro-batch has a single sample, but with a `batch_size` of 1: a step's samples go to as many
    ranks as can have two each, a micro-batch may have one sample more than `batch_size`, and a single sample at the end
    of an epoch joins the step before it.

    With `lengths`, the samples of a step are of like lengths, those of the last one excepted, and every rank gets
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
        """Returns the number of steps from sample `start` to the end of an epoch."""
        return len(self._sizes(start))

    def steps(self, epoch: int, start: int = 0) -> list[StepSamples]:
        """Returns the plan of `epoch` after the first `start` samples: what each of its steps takes."""
        return [self._step(samples) for samples in self._order(epoch)[start:].split(self._sizes(start))]

    def _order(self, epoch: int) -> Tensor:
        """Returns all samples: in random order, or in steps of like lengths whose order is random.

        Steps are formed in each of two random halves, so that a sample meets others in every epoch.
        """
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
        order = torch.randperm(self.size, generator=generator)
        full = self.size // self.global_batch
        if self.lengths is None or not full:
            return order
        whole, tail = order[: full * self.global_batch], order[full * self.global_batch :]
        halves = whole.split(-(-full // 2) * self.global_batch)
        steps = torch.cat([self._by_length(half) for half in halves]).view(full, self.global_batch)
        return torch.cat([steps[torch.randperm(full, generator=generator)].flatten(), tail])

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

    def _step(self, samples: Tensor) -> StepSamples:
        least, most = micro_batch_limits(self.batch_size, batch_norm=self.batch_norm)
        sharers = max(1, min(self.world_size, len(samples) // least))
        largest = -(-len(samples) // sharers)
        parts = max(1, min(-(-(largest - most + self.batch_size) // self.batch_size), largest // least))
        own = self._by_length(samples)[self.rank :: sharers] if self.rank < sharers else samples[:0]
        filled = own.tensor_split(max(1, min(parts, len(own) // least))) if len(own) else ()
        micro_batches = [MicroBatch(part, total=self._total(part)) for part in filled]
        stand_in = MicroBatch(samples[:1], total=0)
        return StepSamples(
            samples=len(samples),
            total=self._total(samples),
            micro_batches=micro_batches + [stand_in] * (parts - len(micro_batches)),
        )

    def _total(self, samples: Tensor) -> int:
        return len(samples) if self.counts is None else int(self.counts[samples].sum())


def micro_batch_limits(batch_size: int, *, batch_norm: bool) -> tuple[int, int]:
    """Returns the least samples of a micro-batch, where a step has so many, and the most."""
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
