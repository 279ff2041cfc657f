"""Initializes the parameters of a model, and freezes some of them."""

from collections.abc import Collection, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Literal

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm  # pyright: ignore[reportPrivateUsage]
from torch.nn.modules.conv import _ConvNd  # pyright: ignore[reportPrivateUsage]

from torchyard.contract.errors import ConfigError

Init = Literal["default", "xavier", "kaiming"]


def initialize(model: nn.Module, new: Collection[str], init: Init) -> None:
    """Initializes the `new` weights of convolutions, linear layers and attention, and sets their biases to 0.

    `xavier`: uniform (Glorot and Bengio, 2010); `kaiming`: normal, for ReLU (He et al., arXiv 1502.01852); `default`:
    unchanged. Norms, embeddings and parameters that are not `new` stay bit for bit. Draws from torch's generator.
    """
    if init == "default":
        return
    chosen = set(new)
    for path, module in model.named_modules():
        if not isinstance(module, nn.Linear | _ConvNd | nn.MultiheadAttention):
            continue
        for name, parameter in module.named_parameters(prefix=path, recurse=False):
            if name not in chosen:
                continue
            if parameter.dim() < 2:
                nn.init.zeros_(parameter)
            elif init == "xavier":
                nn.init.xavier_uniform_(parameter)
            else:
                nn.init.kaiming_normal_(parameter, nonlinearity="relu")


def freeze(model: nn.Module, patterns: Sequence[str]) -> None:
    """Freezes every parameter whose name is a pattern, begins with `PATTERN.`, or matches a pattern with *.

    Raises ConfigError if no name matches a pattern, or if no parameter is left to train.
    """
    parameters = dict(model.named_parameters())
    for pattern in patterns:
        frozen = [name for name in parameters if _matches(name, pattern)]
        if not frozen:
            raise ConfigError(f"model.freeze: no parameter matches {pattern!r}; {_suggestion(pattern, parameters)}")
        for name in frozen:
            parameters[name].requires_grad_(False)
    if not any(parameter.requires_grad for parameter in parameters.values()):
        raise ConfigError("model.freeze: all parameters are frozen, and none is left to train")


def train_mode(model: nn.Module) -> None:
    """Sets training mode, except for frozen batch norms, whose statistics must match their weights."""
    model.train()
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            own = list(module.parameters(recurse=False))
            if own and not any(parameter.requires_grad for parameter in own):
                module.eval()


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or name.startswith(pattern.rstrip(".") + ".") or fnmatchcase(name, pattern)


def _suggestion(pattern: str, names: Collection[str]) -> str:
    """Suggests names of parameters and modules that are like `pattern`."""
    modules = {name[:end] for name in names for end, letter in enumerate(name) if letter == "."}
    near = get_close_matches(pattern, sorted({*names, *modules}), n=3)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"names begin with {', '.join(dict.fromkeys(name.split('.')[0] for name in names))}"
