"""What a model's parameters begin with, and which of them train."""

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
    """Draws the weights of convolutions, linear layers and attention among the `new` parameters; biases become 0.

    `xavier`: uniform (Glorot and Bengio, 2010); `kaiming`: normal, for ReLU (He et al., arXiv 1502.01852); `default`:
    as they are. Norms, embeddings and whatever is not `new` stay bit for bit. Draws from torch's own generator.
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
    """Stops the training of every parameter whose name is a pattern, lies below one, or matches one with *.

    Raises ConfigError for a pattern that no name matches, and where nothing would be left to train.
    """
    parameters = dict(model.named_parameters())
    for pattern in patterns:
        frozen = [name for name in parameters if _matches(name, pattern)]
        if not frozen:
            raise ConfigError(f"model.freeze: no parameter is called {pattern!r}; {_near(pattern, parameters)}")
        for name in frozen:
            parameters[name].requires_grad_(False)
    if not any(parameter.requires_grad for parameter in parameters.values()):
        raise ConfigError("model.freeze: all parameters are frozen, and nothing is left to train")


def train_mode(model: nn.Module) -> None:
    """Training mode, but for batch norms that are frozen: their statistics belong to their weights."""
    model.train()
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            own = list(module.parameters(recurse=False))
            if own and not any(parameter.requires_grad for parameter in own):
                module.eval()


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or name.startswith(pattern.rstrip(".") + ".") or fnmatchcase(name, pattern)


def _near(pattern: str, names: Collection[str]) -> str:
    """What the user may have meant: parameters and the modules that hold them."""
    modules = {name[:end] for name in names for end, letter in enumerate(name) if letter == "."}
    near = get_close_matches(pattern, sorted({*names, *modules}), n=3)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"it begins with {', '.join(dict.fromkeys(name.split('.')[0] for name in names))}"
