"""Loads initial weights: from a file, or torchvision's by name."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
import fcntl
from http.client import HTTPException
from pathlib import Path
import re
import socket
from typing import Any
from urllib.error import HTTPError

import torch
from torch import Tensor, nn
from torch.hub import HASH_REGEX

from torchyard.contract.errors import ConfigError, DataError
from trainer.data.sources import local_path

DOWNLOAD_TIMEOUT_S = 60.0
"""Seconds without an answer after which a download fails."""

_DENSE_LAYER = re.compile(r"(denselayer\d+\.(?:norm|conv))\.([12]\.)")


def is_published(weights: str) -> bool:
    """Returns whether `weights` is the name of published weights: not `none`, a path or a `file://` URL."""
    return weights != "none" and "/" not in weights


def torchvision_state(arch: str, weights: str) -> dict[str, Tensor]:
    """Returns torchvision's weights of a name (`DEFAULT`, `IMAGENET1K_V1`, `ResNet18_Weights.DEFAULT`) for `arch`.

    They are downloaded once per host into $TORCH_HOME, and their digest is checked. Raises ConfigError if there are
    no such weights, and DataError if they cannot be downloaded.
    """
    chosen = _named(arch, weights)
    url: str = chosen.url
    folder = Path(torch.hub.get_dir()) / "checkpoints"
    file = folder / url.rsplit("/", 1)[-1]
    try:
        if not file.exists():
            _download(url, file)
    except (OSError, HTTPException, RuntimeError) as error:
        if isinstance(error, HTTPError):
            error.close()
        raise DataError(
            f"model.weights: {weights} of {arch} cannot be downloaded from {url} to {folder}: {_reason(error)}; give "
            "the file:// URL of a file, or `none`"
        ) from error
    return {_current_name(name): tensor for name, tensor in file_state(str(file)).items()}


def file_state(path: str) -> dict[str, Tensor]:
    """Returns the tensors by name in a .safetensors file, or in a .pt or .pth file of tensors, such as a `state.pt`.

    `path` may be a `file://` URL. Only tensors are unpickled. Raises DataError.
    """
    file = local_path(path)
    try:
        content = _read(file)
    except FileNotFoundError:
        raise DataError(f"model.weights: there is no {file}") from None
    except Exception as error:  # a torn pickle can raise anything
        raise DataError(f"model.weights: {file} cannot be read as weights: {_reason(error)}") from error
    for key in ("model", "state_dict"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping):
        raise DataError(f"model.weights: {file} holds a {type(content).__name__}, not tensors by name")
    tensors = {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
    if not tensors:
        raise DataError(f"model.weights: {file} holds no tensors by name")
    if all(name.startswith("module.") for name in tensors):
        return {name.removeprefix("module."): value for name, value in tensors.items()}
    return tensors


def fill(model: nn.Module, tensors: Mapping[str, Tensor], *, what: str) -> frozenset[str]:
    """Copies each of the `tensors` whose name and shape are those of a parameter or buffer of the model.

    Returns the names of the parameters that were not filled. Raises DataError, which names `what`, if none was.
    """
    filled: set[str] = set()
    with torch.no_grad():
        for name, own in model.state_dict(keep_vars=True).items():
            value = tensors.get(name)
            if value is not None and value.shape == own.shape:
                own.copy_(value)
                filled.add(name)
    names = [name for name, _ in model.named_parameters()]
    new = frozenset(names) - filled
    if len(new) == len(names):
        raise DataError(
            f"model.weights: no tensor in {what} fits the model: the file has {_examples(tensors)}, the model "
            f"{_examples(dict(model.named_parameters()))}"
        )
    return new


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


def _download(url: str, file: Path) -> None:
    """Downloads to `file`, which appears only when it is complete."""
    digest = HASH_REGEX.search(file.name)
    with _locked(file.with_name(f".{file.name}.lock")), _socket_timeout(DOWNLOAD_TIMEOUT_S):
        if not file.exists():
            torch.hub.download_url_to_file(url, str(file), digest.group(1) if digest else None, progress=False)


def _current_name(name: str) -> str:
    """Returns a name as today's models have it: published DenseNets say `norm.1`, which module names forbid now."""
    return _DENSE_LAYER.sub(r"\1\2", name)


def _read(file: Path) -> Any:
    if file.suffix != ".safetensors":
        return torch.load(file, map_location="cpu", weights_only=True)
    from safetensors.torch import load_file

    return load_file(file)


@contextmanager
def _locked(file: Path) -> Generator[None]:
    """Locks out other processes of this host. The lock ends with the process at the latest."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _socket_timeout(seconds: float) -> Generator[None]:
    """Sets the default timeout of sockets: torch.hub has none."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _examples(tensors: Mapping[str, Tensor]) -> str:
    shown = [f"{name} {tuple(tensor.shape)}" for name, tensor in list(tensors.items())[:3]]
    return ", ".join(shown) + (", …" if len(tensors) > len(shown) else "")


def _reason(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
