"""Averages of weights: an exponential moving average, and the slow weights of Lookahead.

Both are updated after each optimizer step that changed the parameters, in the order in which they were made.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from torchyard.contract.recipes import EmaConfig, LookaheadConfig


class ExponentialAverage:
    """The exponential moving average of a model's state, updated after each optimizer step.

    After step u, average = d · average + (1 − d) · model, with d = decay · (1 − exp(−u / ramp)), for trainable
    parameters and floating-point buffers. Other buffers are copied from the model, frozen parameters are shared with
    it. Make the average last: after other objects that change the weights after a step, and after the model was moved
    to its device, memory format and shards.
    """

    def __init__(self, model: nn.Module, config: EmaConfig, optimizer: Optimizer) -> None:
        state = {name: live for name, live in model.state_dict(keep_vars=True).items() if isinstance(live, Tensor)}
        shadows = {id(live): live.detach() if _is_frozen(live) else live.detach().clone() for live in state.values()}
        self.tensors = {name: shadows[id(live)] for name, live in state.items()}
        """The averages by the names of the model's state_dict. Two names of a shared tensor have one average."""
        self.updates = 0
        """Optimizer steps that changed the parameters."""
        self._model, self._config = model, config
        followed = {id(live): live for live in state.values() if not _is_frozen(live)}.values()
        floating = [live for live in followed if live.is_floating_point()]
        self._lives = floating + [live for live in followed if not live.is_floating_point()]
        self._shadows = [shadows[id(live)] for live in self._lives]
        self._averaged = len(floating)
        """The first tensors, this many, are averaged; the others are copied."""
        _after_updates(optimizer, self._update)

    @contextmanager
    def applied(self) -> Generator[None]:
        """Returns a context in which the model has the averaged state. Its own state is restored exactly afterwards.

        Changes of the model inside the context are lost. Takes the memory of a copy of the model.
        """
        with torch.no_grad():
            _reshard(self._model)
            kept = [live.clone() for live in _local(self._lives)]
            _copy(_local(self._lives), _local(self._shadows))
        try:
            yield
        finally:
            with torch.no_grad():
                _reshard(self._model)
                _copy(_local(self._lives), kept)

    def state_dict(self) -> dict[str, Any]:
        """Returns the state besides `tensors`."""
        return {"updates": self.updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the state besides `tensors`."""
        self.updates = state["updates"]

    @torch.no_grad()
    def _update(self) -> None:
        self.updates += 1
        lives, shadows = _local(self._lives), _local(self._shadows)
        _lerp(shadows[: self._averaged], lives[: self._averaged], 1 - self._decay())
        _copy(shadows[self._averaged :], lives[self._averaged :])

    def _decay(self) -> float:
        if not self._config.ramp:
            return self._config.decay
        return self._config.decay * -math.expm1(-self.updates / self._config.ramp)


class Lookahead:
    """Lookahead (Zhang et al., arXiv 1907.08610) around any optimizer.

    After every `every_steps` steps: slow += alpha · (fast − slow), fast = slow, where the model's trained parameters
    are the fast weights. The optimizer keeps its own state. Make it before an ExponentialAverage, which then averages
    the weights after Lookahead.
    """

    def __init__(self, model: nn.Module, config: LookaheadConfig, optimizer: Optimizer) -> None:
        trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        self.tensors = {name: parameter.detach().clone() for name, parameter in trained.items()}
        """The slow weights by the names of the model's parameters."""
        self.steps = 0
        """Optimizer steps that changed the parameters."""
        self._config = config
        self._fast = list[Tensor](trained.values())
        self._slow = list(self.tensors.values())
        _after_updates(optimizer, self._update)

    def state_dict(self) -> dict[str, Any]:
        """Returns the state besides `tensors`."""
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the state besides `tensors`."""
        self.steps = state["steps"]

    @torch.no_grad()
    def _update(self) -> None:
        self.steps += 1
        if self.steps % self._config.every_steps:
            return
        slow, fast = _local(self._slow), _local(self._fast)
        _lerp(slow, fast, self._config.alpha)
        _copy(fast, slow)


def _is_frozen(tensor: Tensor) -> bool:
    return isinstance(tensor, nn.Parameter) and not tensor.requires_grad


def _after_updates(optimizer: Optimizer, action: Callable[[], None]) -> None:
    """Calls `action` after each step of the optimizer that changed parameters."""

    def after_step(optimizer: Optimizer, *_: object) -> None:
        # After an overflow in fp16, GradScaler does not call the optimizer, unless it is fused: a fused optimizer reads
        # `found_inf` on the device. Only then this waits for the device.
        found_inf: Tensor | None = getattr(optimizer, "found_inf", None)
        if found_inf is None or not found_inf.item():
            action()

    optimizer.register_step_post_hook(after_step)


def _reshard(model: nn.Module) -> None:
    """Makes FSDP2 free the whole parameters that it keeps after a forward pass: they would hold old values."""
    model.state_dict()


def _local(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Returns each tensor, or this rank's shard of a DTensor. Not every foreach operation takes DTensors."""
    from torch.distributed.tensor import DTensor  # slow to import, but every optimizer has imported it

    return [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors]


def _lerp(targets: list[Tensor], ends: list[Tensor], weight: float) -> None:
    if targets:
        torch._foreach_lerp_(targets, ends, weight)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]


def _copy(targets: list[Tensor], sources: list[Tensor]) -> None:
    if targets:
        torch._foreach_copy_(targets, sources)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
