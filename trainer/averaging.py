"""Averages of weights: an exponential moving average, and the slow weights of Lookahead.

Both are updated after each optimizer step, and a skipped step does not change them. Their steps are those of the run.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
import math

import torch
from torch import Tensor, nn

from torchyard.contract.recipes import EmaConfig, LookaheadConfig
from trainer.offloading import HostUpdates, host_copy
from trainer.skipping import by_dtype, move, replace


class ExponentialAverage:
    """The exponential moving average of a model's state.

    After step u, average = d · average + (1 − d) · model, with d = decay · (1 − exp(−u / ramp)), for trainable
    parameters and floating-point buffers. Frozen parameters and other buffers are shared with the model. Make the
    average after the model was moved to its device, memory format and shards. On the device `cpu` a thread updates it.
    """

    def __init__(self, model: nn.Module, config: EmaConfig) -> None:
        state = {name: live for name, live in model.state_dict(keep_vars=True).items() if isinstance(live, Tensor)}
        copied = host_copy if config.device == "cpu" else torch.clone
        shadows = {id(live): copied(live.detach()) if _is_averaged(live) else live.detach() for live in state.values()}
        self._tensors = {name: shadows[id(live)] for name, live in state.items()}
        self._model, self._config = model, config
        self._lives = list({id(live): live for live in state.values() if _is_averaged(live)}.values())
        self._shadows = [shadows[id(live)] for live in self._lives]
        self._alike = by_dtype(self._shadows, self._lives)
        self._counts = [live for live in state.values() if not live.is_floating_point()]
        self._host = HostUpdates(self._lives, self._shadows) if config.device == "cpu" else None

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The averages by the names of the model's state_dict. Two names of a shared tensor have one average."""
        if self._host is not None:
            self._host.finish()
        return self._tensors

    def update(self, step: int, *, skipped: Tensor) -> None:
        """Updates the average after optimizer step `step` of the run. `skipped`: 1 if it changed nothing, else 0."""
        weight = 1 - self._decay(step)
        if self._host is not None:
            self._host.start(weight, skipped=skipped)
            return
        for shadows, lives in self._alike:
            move(_local(shadows), _local(lives), weight, skipped=skipped)

    @contextmanager
    def applied(self) -> Generator[None]:
        """Returns a context in which the model has the averaged state. Its own state is restored exactly afterwards.

        Changes of the model inside the context are lost. Takes the memory of a copy of the model where the average is.
        """
        if self._host is not None:
            self._host.finish()
        with torch.no_grad():
            _reshard(self._model)
            lives = [*_local(self._lives), *self._counts]
            kept = [live.to("cpu", copy=True) if self._host else live.clone() for live in lives]
            _copy(_local(self._lives), _local(self._shadows))
        try:
            yield
        finally:
            with torch.no_grad():
                _reshard(self._model)
                _copy([*_local(self._lives), *self._counts], kept)

    def _decay(self, step: int) -> float:
        if not self._config.ramp:
            return self._config.decay
        return self._config.decay * -math.expm1(-step / self._config.ramp)


class Lookahead:
    """Lookahead (Zhang et al., arXiv 1907.08610) around any optimizer.

    After every `every_steps` steps: slow += alpha · (fast − slow), fast = slow, where the model's trained parameters
    are the fast weights. If the last of these steps was skipped, both stay apart until the next time. The optimizer
    keeps its own state. Update it before an ExponentialAverage, which then averages the weights after Lookahead.
    """

    def __init__(self, model: nn.Module, config: LookaheadConfig) -> None:
        trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        self.tensors = {name: parameter.detach().clone() for name, parameter in trained.items()}
        """The slow weights by the names of the model's parameters."""
        self._config = config
        self._alike = by_dtype(list[Tensor](trained.values()), list(self.tensors.values()))

    def update(self, step: int, *, skipped: Tensor) -> None:
        """Updates the weights after optimizer step `step` of the run. `skipped`: 1 if it changed nothing, else 0."""
        if step % self._config.every_steps:
            return
        for parameters, averages in self._alike:
            fast, slow = _local(parameters), _local(averages)
            move(slow, fast, self._config.alpha, skipped=skipped)
            replace(fast, slow, skipped=skipped)


def _is_averaged(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and (tensor.requires_grad or not isinstance(tensor, nn.Parameter))


def _reshard(model: nn.Module) -> None:
    """Makes FSDP2 free the whole parameters that it keeps after a forward pass: they would hold old values."""
    model.state_dict()


def _local(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Returns each tensor, or this rank's shard of a DTensor. Not every foreach operation takes DTensors."""
    from torch.distributed.tensor import DTensor  # slow to import, but every optimizer has imported it

    return [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors]


def _copy(targets: list[Tensor], sources: list[Tensor]) -> None:
    if targets:
        torch._foreach_copy_(targets, sources)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
