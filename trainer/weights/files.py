"""Loads initial weights: from a file, or torchvision's by name."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from pathlib import Path
import re
from typing import Any, BinaryIO

import torch
from torch import Tensor, nn

from torchyard.contract.errors import ConfigError, DataError
from trainer.data.sources import local_path
from trainer.weights.downloads import published_file, reason

_DENSE_LAYER = re.compile(r"(denselayer\d+\.(?:norm|conv))\.([12]\.)")


def torchvision_state(arch: str, weights: str) -> dict[str, Tensor]:
    """Returns torchvision's weights of a name (`DEFAULT`, `IMAGENET1K_V1`, `ResNet18_Weights.DEFAULT`) for `arch`.

    They are downloaded once, and their digest is checked whenever they are loaded. Raises ConfigError if there are no
    such weights, and DataError if they cannot be downloaded or read.
    """
    url: str = _named(arch, weights).url
    with published_file(url, what=f"{weights} of {arch}") as content:
        tensors = _tensors(partial(_load, content), url)
    return {_current_name(name): tensor for name, tensor in tensors.items()}


def crop_fraction(arch: str, weights: str) -> float:
    """Returns the share of a picture's side that torchvision kept, from its centre, when it evaluated these weights.

    Raises ConfigError if there are no such weights.
    """
    protocol = _named(arch, weights).transforms()
    return min(1.0, protocol.crop_size[0] / protocol.resize_size[0])


def file_state(path: str) -> dict[str, Tensor]:
    """Returns the tensors by name in a .safetensors file, or in a .pt or .pth file of tensors, such as a `state.pt`.

    `path` may be a `file://` URL. Only tensors are unpickled. Raises DataError.
    """
    file = local_path(path)
    return _tensors(partial(_read, file), str(file))


def fill(model: nn.Module, tensors: Mapping[str, Tensor], *, what: str) -> frozenset[str]:
    """Does what `copy_fitting` does.

    Returns the names of the parameters that were not filled. Raises DataError, which names `what`, if none was.
    """
    filled = copy_fitting(model, tensors)
    names = [name for name, _ in model.named_parameters()]
    new = frozenset(names) - filled
    if len(new) == len(names):
        raise DataError(
            f"model.weights: no tensor in {what} fits the model: the file has {_examples(tensors)}, the model "
            f"{_examples(dict(model.named_parameters()))}"
        )
    return new


def copy_fitting(model: nn.Module, tensors: Mapping[str, Tensor]) -> set[str]:
    """Copies each of the `tensors` whose name and shape are those of a parameter or buffer. Returns their names.

    One on the meta device takes no values.
    """
    filled: set[str] = set()
    with torch.no_grad():
        for name, own in model.state_dict(keep_vars=True).items():
            value = tensors.get(name)
            if value is not None and value.shape == own.shape:
                own.copy_(value)
                filled.add(name)
    return filled


def _named(arch: str, weights: str) -> Any:
    from torchvision.models import get_model_weights

    try:
        known: Any = get_model_weights(arch)
    except ValueError:
        raise ConfigError(f"model.weights: torchvision has no weights for {arch}: use `none` or a file") from None
    name = weights.removeprefix(f"{known.__name__}.")
    names = list(known.__members__)
    if name in names:
        return known[name]
    near = get_close_matches(name, names, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(names) or 'none'}"
    raise ConfigError(f"model.weights: {arch} has no weights {weights!r}; {hint}")


def _tensors(read: Callable[[], Any], what: str) -> dict[str, Tensor]:
    """Returns the tensors by name in what `read` returns. Raises DataError, which names `what`."""
    try:
        content = read()
    except FileNotFoundError:
        raise DataError(f"model.weights: there is no {what}") from None
    except Exception as error:  # a torn pickle can raise anything
        raise DataError(f"model.weights: {what} cannot be read as weights: {reason(error)}") from error
    for key in ("model", "state_dict"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping):
        raise DataError(f"model.weights: {what} holds a {type(content).__name__}, not tensors by name")
    tensors = {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
    if not tensors:
        raise DataError(f"model.weights: {what} holds no tensors by name")
    if all(name.startswith("module.") for name in tensors):
        return {name.removeprefix("module."): value for name, value in tensors.items()}
    return tensors


def _current_name(name: str) -> str:
    """Returns a name as today's models have it: published DenseNets say `norm.1`, which module names forbid now."""
    return _DENSE_LAYER.sub(r"\1\2", name)


def _read(file: Path) -> Any:
    if file.suffix != ".safetensors":
        return _load(file)
    from safetensors.torch import load_file

    return load_file(file)


def _load(file: Path | BinaryIO) -> Any:
    return torch.load(file, map_location="cpu", weights_only=True)


def _examples(tensors: Mapping[str, Tensor]) -> str:
    shown = [f"{name} {tuple(tensor.shape)}" for name, tensor in list(tensors.items())[:3]]
    return ", ".join(shown) + (", …" if len(tensors) > len(shown) else "")
