"""A task's model with what changes its weights: strategy, precision, optimizer and averages, and their state."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
import math
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from torchyard.contract.recipes import Recipe
from torchyard.run.tensors import on_host
from trainer.averaging import ExponentialAverage, Lookahead
from trainer.compilation import compile_in_place
from trainer.data.batch import Batch
from trainer.meeting import Meeting
from trainer.optimization import make_optimizer
from trainer.precision import Precision
from trainer.sampler import Window
from trainer.schedule import set_lr
from trainer.skipping import take_step
from trainer.statistics import Statistics
from trainer.strategies import make_strategy
from trainer.strategies.strategy import Strategy
from trainer.task import Task
from trainer.window import Step
from trainer.world import World


class Learner:
    """Takes optimizer steps. Every rank has one.

    `lr`: the learning rate of the first step. Raises ConfigError.
    """

    def __init__(self, task: Task, *, config: Recipe, world: World, precision: Precision, lr: float) -> None:
        self.precision = precision
        self._task, self._world, self._score = task, world, task.score
        self._clip = config.optimizer.clip_grad_norm
        if config.training.compile:
            compile_in_place(task.model)
        self.strategy = make_strategy(
            task.model, config.distributed, world, compute=precision.dtype, unfilled=task.unfilled
        )
        # With shards the ranks meet in every layer.
        meets = world.size > 1 and config.distributed.strategy != "fsdp"
        self._meeting = Meeting(task.model, world.device) if meets else None
        self.optimizer = make_optimizer(task.model, config.optimizer, lr=lr, device=world.device)
        wanted = config.optimizer.lookahead
        self.lookahead = Lookahead(task.model, wanted) if wanted else None
        self.ema = ExponentialAverage(task.model, config.ema) if config.ema else None
        self._statistics = Statistics(task.model)
        self._in_sync = False
        """Whether `sync_ranks` was called after the last step."""

    def step(self, number: int, window: Window, batches: Iterator[Batch], *, lr: float) -> Step:
        """Takes optimizer step `number` along the gradient of the mean loss over what all ranks' samples count.

        If the loss or the gradient norm is not finite, the step changes nothing: no weights, moments, statistics of
        batch norms or averages, and it does not count in the score. Waits for the device only with an optimizer that
        is not fused.
        """
        self._in_sync = False
        set_lr(self.optimizer, lr)
        self._statistics.keep()
        loss = self._backward(window, batches)
        if self._meeting is not None:
            self._meeting.leave()
        scale = self.precision.scale
        self.precision.unscale(self.optimizer)
        norm = self.strategy.grad_norm()
        if self._clip is not None:
            self.strategy.clip(self._clip, norm=norm)
        skipped = take_step(self.optimizer, norm=norm)
        self.precision.update(skipped)
        self._statistics.restore(skipped=skipped)
        if self._score is not None:
            self._score.end_step(skipped=skipped)
        self.optimizer.zero_grad(set_to_none=True)
        # In this order, so that the average follows the weights after Lookahead.
        if self.lookahead:
            self.lookahead.update(number, skipped=skipped)
        if self.ema:
            self.ema.update(number, skipped=skipped)
        self._after_step(number)
        return Step(loss, norm, scale)

    def waited_for_ranks(self) -> float:
        """Returns the seconds in which this rank exchanged gradients or weights with the others, or waited for them.

        Of the steps since the last call; NaN if that is not measured. Does not wait for the device.
        """
        return math.nan if self._meeting is None else self._meeting.take()

    def sync_ranks(self) -> None:
        """Gives all ranks the same weights, averages and buffers, once after each step. A collective."""
        if not self._in_sync:
            self.strategy.sync_ranks(*([self.ema.tensors] if self.ema else []))
            self._in_sync = True

    def averaged(self) -> AbstractContextManager[object]:
        """Returns a context in which the model has its averaged weights, if there is an average."""
        return self.ema.applied() if self.ema else nullcontext()

    def rank_local_state(self) -> dict[str, Any] | None:
        """Returns a copy of the state that differs between ranks, or None if the strategy keeps the ranks equal."""
        if not self.strategy.local:
            return None
        differing = {
            "model": self._task.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "ema": self.ema.tensors if self.ema else None,
            "lookahead": self.lookahead.tensors if self.lookahead else None,
        }
        copied, wait = on_host(differing, clone=True)
        wait()
        return copied

    def state_dict(self, *, before_sync: bool) -> dict[str, Any]:
        """Synchronizes the ranks and returns `model`, the weights to evaluate, and all that the next step depends on.

        `before_sync`: the state that differs between ranks is taken before they are synchronized. Of shards each rank
        returns its own. A collective.
        """
        rank_local = self.rank_local_state() if before_sync else None
        self.sync_ranks()
        rank_local = rank_local or self.rank_local_state()
        raw = self._task.model.state_dict()
        return {
            "model": self.ema.tensors if self.ema else raw,
            "raw": raw if self.ema else None,
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.precision.state_dict(),
            "slow": self.lookahead.tensors if self.lookahead else None,
            "strategy": self.strategy.state_dict(),
            "own": self._world.collect(rank_local) if self.strategy.local else None,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a state of the same or another number of ranks.

        The caller has loaded the model's weights before the strategy wrapped or sharded it.
        """
        ranks = state["own"] or ()
        own = ranks[self._world.rank] if len(ranks) == self._world.size else None
        if own is not None:
            self._task.model.load_state_dict(own["model"])
        optimizer = own["optimizer"] if own else state["optimizer"]
        self.optimizer.load_state_dict(_sharded(optimizer, self.optimizer, self.strategy))
        self.precision.load_state_dict(state["scaler"])
        if self.ema and state["raw"]:
            _fill(self.ema.tensors, own["ema"] if own else state["model"], self.strategy)
        if self.lookahead and state["slow"]:
            _fill(self.lookahead.tensors, own["lookahead"] if own else state["slow"], self.strategy)
        self.strategy.load_state_dict(state["strategy"])

    def _after_step(self, number: int) -> None:
        exchanges = self._meeting if self.strategy.local else None
        if exchanges is not None:
            exchanges.arrive()
        self.strategy.after_step(number)
        if exchanges is not None:
            exchanges.leave()

    def _backward(self, window: Window, batches: Iterator[Batch]) -> Tensor:
        """Computes the gradients of a window. Returns this rank's part of its loss, detached."""
        total: Tensor | None = None
        weights = window.weights(self._world.size)
        scale = 1.0 if self.precision.scale is None else self.precision.scale
        for index, (micro_batch, weight) in enumerate(zip(window.micro_batches, weights, strict=True), start=1):
            batch = next(batches)
            counts = nullcontext() if micro_batch.counts else self._statistics.untouched()
            with self.strategy.micro_batch(last=index == len(weights)), counts:
                with self.precision.autocast():
                    outputs = self.strategy.model(batch.inputs)
                    loss = self._task.loss(outputs, batch.targets)
                    if self.precision.scale is not None:
                        loss = loss.float()  # the first scale is infinite in fp16
                if self._score is not None and weight:  # a stand-in batch has no weight
                    self._score.add(outputs, batch.targets)
                del outputs  # the loss has kept what it needs of them
                value = loss.detach()
                # The gradient is NaN if the loss is not finite: the all-reduce then tells all ranks.
                loss.backward(value * 0 + scale * weight)
            part = value if weight == 1.0 else value * weight
            total = part if total is None else total + part
        assert total is not None, "a window has a micro-batch"
        return total


def _fill(targets: Mapping[str, Tensor], saved: Mapping[str, Tensor], strategy: Strategy) -> None:
    with torch.no_grad():
        for name, target in targets.items():
            target.copy_(strategy.shard(saved[name], target))


def _sharded(saved: Mapping[str, Any], optimizer: Optimizer, strategy: Strategy) -> dict[str, Any]:
    """Returns the part of an optimizer's whole state that this rank's `optimizer` loads.

    The groups are the optimizer's own: another device has other kernels (`fused`), and they need what is not saved.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]

    def part(value: Any, parameter: Tensor) -> Any:
        moment = isinstance(value, Tensor) and value.ndim > 0 and value.shape == parameter.shape
        return strategy.shard(value, parameter) if moment else value

    state = {
        index: {key: part(value, parameters[index]) for key, value in entries.items()}
        for index, entries in saved["state"].items()
    }
    own = optimizer.state_dict()
    return {"state": {**own["state"], **state}, "param_groups": own["param_groups"]}
