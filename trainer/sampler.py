"""The samples of a run: their order, what each optimizer step takes of them on each rank, and how far the run is."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from torchyard.contract.recipes import TrainingConfig
from trainer.data.batch import Batch
from trainer.task import Task


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


def load_steps(task: Task, plan: Sequence[StepSamples], *, epoch: int) -> Iterator[StepSamples]:
    """Yields what each step of the plan takes, with its batches. Raises DataError."""
    indices = [micro_batch.indices for step in plan for micro_batch in step.micro_batches]
    return _loaded(plan, task.training_batches(indices, epoch=epoch))


class Position:
    """The progress of a run. Every rank has the same one."""

    def __init__(self, sampler: TrainSampler, config: TrainingConfig) -> None:
        self.step = 0
        """Optimizer steps that are done, over the whole run."""
        self.epoch = 1
        """The epoch that is being trained, counted from 1."""
        self.samples = 0
        """Samples of this epoch that all ranks together have trained on."""
        self.end_of_epoch = False
        """Whether the epoch is complete, and evaluated if an evaluation was due."""
        self.ended = False
        """Whether the run is complete."""
        self._sampler, self._config = sampler, config
        self.total_steps = self._total_steps()
        """Optimizer steps of the whole run."""

    @property
    def epochs(self) -> float:
        """Epochs that are done, with the part of the current one. The number of ranks does not change it."""
        return self.epoch - 1 + self.samples / self._sampler.size

    @property
    def whole_epochs(self) -> int:
        """Epochs that have ended."""
        return self.epoch if self.end_of_epoch else self.epoch - 1

    @property
    def progress(self) -> dict[str, int]:
        """What `Run.progress` reports."""
        epochs = self._config.epochs
        return {
            "step": self.step,
            "total_steps": self.total_steps,
            "epoch": min(self.epoch, epochs),
            "epochs": epochs,
        }

    def advance(self, samples: int) -> None:
        """Counts an optimizer step on `samples` samples of all ranks."""
        self.step += 1
        self.samples += samples

    def complete_epoch(self, *, end_run: bool) -> None:
        """Marks the epoch as complete, and the run if it ends here: at its last step, or by early stopping."""
        self.end_of_epoch = self._sampler.count(self.samples) == 0
        self.ended = end_run

    def begin_next_epoch(self) -> None:
        """Moves to the beginning of the next epoch."""
        self.epoch, self.samples, self.end_of_epoch = self.epoch + 1, 0, False

    def state_dict(self) -> dict[str, Any]:
        """Returns the keys of `state.pt` that describe the position."""
        sampler = self._sampler
        return {
            "step": self.step,
            "epoch": self.epoch,
            "end_of_epoch": self.end_of_epoch,
            "ended": self.ended,
            "sampler": {
                "epoch": self.epoch,
                "samples": self.samples,
                "world_size": sampler.world_size,
                "global_batch": sampler.global_batch,
                "batch_size": sampler.batch_size,
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a saved position: after a complete epoch, at the beginning of the next one."""
        self.step, self.ended = state["step"], state["ended"]
        self.epoch, self.samples = state["sampler"]["epoch"], state["sampler"]["samples"]
        if state["end_of_epoch"]:
            self.begin_next_epoch()
        self.total_steps = self._total_steps()

    def _total_steps(self) -> int:
        """Returns the steps that are done, those left of this epoch, and those of the epochs after it."""
        epochs, limit = self._config.epochs, self._config.max_steps
        later = epochs - self.epoch
        left = self._sampler.count(self.samples) + later * self._sampler.count() if later >= 0 else 0
        total = self.step + left
        return total if limit is None else min(total, max(limit, self.step))


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


def _loaded(plan: Sequence[StepSamples], batches: Iterator[Batch]) -> Iterator[StepSamples]:
    for step in plan:
        own = islice(batches, len(step.micro_batches))
        yield StepSamples(step.samples, step.total, step.micro_batches, own)
        for _ in own:  # what the step has left is not the next one's
            pass
