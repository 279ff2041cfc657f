"""Weights that follow the optimizer's: an exponential average, and Lookahead's slow weights.

Both act after each optimizer step that changed the parameters, in the order in which they were made.
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

    After step u it is average = d · average + (1 − d) · model, with d = decay · (1 − exp(−u / ramp)), over the
    parameters that train and the floating buffers; other buffers are the model's newest, frozen parameters its own.
    Make it last: after whatever else changes the weights after a step, so that it sees the result, and when
    the model's tensors lie where they stay (device, memory format, shards).
    """

    def __init__(self, model: nn.Module, config: EmaConfig, optimizer: Optimizer) -> None:
        state = {name: live for name, live in model.state_dict(keep_vars=True).items() if isinstance(live, Tensor)}
        shadows = {id(live): live.detach() if _is_frozen(live) else live.detach().clone() for live in state.values()}
        self.tensors = {name: shadows[id(live)] for name, live in state.items()}
        """The average by the names of the model's state_dict; two names of a shared tensor have one average."""
        self.updates = 0
        """Optimizer steps that it has seen."""
        self._model, self._config = model, config
        followed = {id(live): live for live in state.values() if not _is_frozen(live)}.values()
        floating = [live for live in followed if live.is_floating_point()]
        self._lives = floating + [live for live in followed if not live.is_floating_point()]
        self._shadows = [shadows[id(live)] for live in self._lives]
        self._averaged = len(floating)
        """So many of them, the first, are averaged; the others are copied."""
        _after_updates(optimizer, self._update)

    @contextmanager
    def applied(self) -> Generator[None]:
        """Within it the model has the averaged state; after it, its own again, to the bit. Costs a copy of the model.

        What the body changes in the model is lost.
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
        """What belongs to it besides `tensors`."""
        return {"updates": self.updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
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
    what it leaves in the model.
    """

    def __init__(self, model: nn.Module, config: LookaheadConfig, optimizer: Optimizer) -> None:
        trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        self.tensors = {name: parameter.detach().clone() for name, parameter in trained.items()}
        """The slow weights by the names of the model's parameters."""
        self.steps = 0
        """Optimizer steps that it has seen."""
        self._config = config
        self._fast = list[Tensor](trained.values())
        self._slow = list(self.tensors.values())
        _after_updates(optimizer, self._update)

    def state_dict(self) -> dict[str, Any]:
        """What belongs to it besides `tensors`."""
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
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
        # With an overflow in fp16, GradScaler leaves out the step; but a fused optimizer is called to find out by
        # itself. Only then is there `found_inf`, and only then does this wait for the device.
        found_inf: Tensor | None = getattr(optimizer, "found_inf", None)
        if found_inf is None or not found_inf.item():
            action()

    optimizer.register_step_post_hook(after_step)


def _reshard(model: nn.Module) -> None:
    """Makes FSDP2 drop whole parameters that it keeps after a forward pass: it would go on with their old values."""
    model.state_dict()


def _local(tensors: Sequence[Tensor]) -> list[Tensor]:
    """What this rank has of each: a DTensor's shard. Not every operation on lists takes DTensors."""
    from torch.distributed.tensor import DTensor  # takes a second, but an optimizer has imported it

    return [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors]


def _lerp(targets: list[Tensor], ends: list[Tensor], weight: float) -> None:
    if targets:
        torch._foreach_lerp_(targets, ends, weight)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]


def _copy(targets: list[Tensor], sources: list[Tensor]) -> None:
    if targets:
        torch._foreach_copy_(targets, sources)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
