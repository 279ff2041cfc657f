"""Reads the checkpoints of recipes. What a file says is not trusted: nothing in it is run."""

from collections.abc import Mapping
import json
from pathlib import Path
import pickle
from typing import Annotated, Any
import zipfile

from pydantic import AfterValidator, Field, ValidationError
import torch
from torch import Tensor, nn

from torchyard.contract.attempts.rundir import ARCHIVE_SUFFIX, INDEX_FILE, STATE_FILE
from torchyard.contract.errors import DataError
from torchyard.contract.recipes import REGISTRY, Recipe
from torchyard.models import amounts
from torchyard.states.savedfiles import read_archive, read_folder

FORMAT = 1
"""The version of the layout of `state.pt`, its key `format`. A state without that key has version 1."""

HEADER_KEY = "torchyard"
"""Where the header of an exported `model.safetensors` has the state without its weights, as JSON."""

METADATA = (
    *("format", "recipe", "config", "metrics", "epoch", "step"),
    *("classes", "normalization", "input", "crop_fraction"),
    *("threshold", "mask_threshold", "outputs", "palette"),
    *("tokenizer", "model_config", "form", "adapter"),
)
"""The keys of a state that say how its weights are used. The others are for going on with the training."""


def _distinct(names: list[str]) -> list[str]:
    if len({*names}) < len(names):
        raise ValueError("two classes have one name")
    return names


Classes = Annotated[list[str], Field(min_length=1, max_length=100_000), AfterValidator(_distinct)]
"""The names of the classes in a state."""

_ZIP, _LONGEST_REASON = b"PK\x03\x04", 500
_OTHER_OBJECTS = "it holds objects that no checkpoint of a recipe has"
_PICKLE = "data.pkl"
"""How the name of the file of a checkpoint ends that has all but the numbers of its tensors."""


def state_in(folder: Path) -> Path:
    """Returns what `read` takes of a checkpoint's folder: its `state.pt`, or the index of several files."""
    state, index = folder / STATE_FILE, folder / INDEX_FILE
    return index if index.exists() and not state.exists() else state


def read(path: str | Path) -> dict[str, Any]:
    """Returns the state in a `state.pt`, or in a `model.safetensors` that `torchyard export` wrote.

    A checkpoint of several files is named by its folder, its index or the archive of them. The tensors are mapped from
    the files, and read when they are used. Raises DataError, with one line, if it is not a checkpoint of a recipe that
    this version can read.
    """
    file = Path(path)
    try:
        state = _of_parts(file) or (_unpickled(file) if _begins_as(_ZIP, file) else _safetensors(file))
    except DataError:
        raise
    except Exception as error:  # a torn pickle can raise anything
        raise DataError(f"{file} cannot be read as a checkpoint: {_reason(error)}") from error
    if not isinstance(state, dict) or not {"recipe", "config", "model"} <= state.keys():
        raise DataError(f"{file} is not a checkpoint of a recipe. Only its script can use the checkpoint of a script")
    amounts.check_metadata(metadata_of(state), what=str(file))
    _check_format(file, state.get("format", 1))
    if not _are_weights(state["model"]):
        raise DataError(f"{file} is not a checkpoint of a recipe: its model is not made of plain tensors by name")
    amounts.check_weights(state["model"], size=amounts.bytes_of(file), what=str(file))
    return state


def config_of(path: str | Path, state: Mapping[str, Any]) -> Recipe:
    """Returns the configuration in a state. Raises DataError."""
    name = state["recipe"]
    recipe = REGISTRY.get(name) if isinstance(name, str) else None
    if recipe is None:
        raise DataError(f"{path}: this version has no recipe {str(name)[:100]}")
    try:
        return recipe.config.model_validate(state["config"])
    except ValidationError as error:
        raise DataError(f"{path}: its configuration is not valid in this version") from error


def metadata_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a state says about the use of its weights: all of METADATA that it has."""
    return {key: state[key] for key in METADATA if key in state}


def fill(module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Gives the module its weights. Raises DataError if they do not fit it, or are not finite."""
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        wrong = "; ".join(line.strip() for line in str(error).splitlines()[1:3]) or str(error)
        raise DataError(f"its weights do not fit its model: {wrong}") from error
    for name, _ in module.named_parameters():
        if name in weights and not bool(weights[name].isfinite().all()):
            raise DataError(f"its weights are not finite: {name}")


def reason(error: BaseException) -> str:
    """Returns what an error says, on one line."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        said = first["msg"].removeprefix("Value error, ")
        return f"{'.'.join(map(str, first['loc']))}: {said}" if first["loc"] else said
    if isinstance(error, KeyError):
        return f"there is no {error}"
    return (str(error).strip() or type(error).__name__).splitlines()[0][:_LONGEST_REASON]


def raise_unless_failed(error: BaseException) -> None:
    """Raises the error again unless it is an exception of a library. A panic of Rust is one, though no Exception."""
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        raise error


def _of_parts(file: Path) -> dict[str, Any] | None:
    """Returns the state of a checkpoint of several files. None if it is none."""
    if file.name == INDEX_FILE:
        return read_folder(file.parent)
    if (file / INDEX_FILE).exists():
        return read_folder(file)
    return read_archive(file) if file.suffix == ARCHIVE_SUFFIX and not _begins_as(_ZIP, file) else None


def _begins_as(magic: bytes, file: Path) -> bool:
    if not file.is_file():  # a pipe would be waited for
        what = "is no file" if file.exists() else "does not exist"
        raise DataError(f"{file} cannot be read as a checkpoint: it {what}")
    with file.open("rb") as opened:
        return opened.read(len(magic)) == magic


def _unpickled(file: Path) -> Any:
    with zipfile.ZipFile(file) as archive:
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
            raise DataError(f"{file} cannot be read as a checkpoint: it is compressed, as no checkpoint is")
        pickles = [name for name in archive.namelist() if name.endswith(_PICKLE)]
        if len(pickles) > 1 or any(_makes_bytes(archive.read(name)) for name in pickles):
            raise DataError(f"{file} cannot be read as a checkpoint: {_OTHER_OBJECTS}")
    return torch.load(file, map_location="cpu", weights_only=True, mmap=True)


def _makes_bytes(pickled: bytes) -> bool:
    """Returns whether a pickle names what takes as much memory as a number in it says. JSON has no such line breaks."""
    return b"\nbytearray\n" in pickled


def _safetensors(file: Path) -> Any:
    from safetensors import safe_open

    if file.suffix != ".safetensors":
        raise DataError(f"{file} cannot be read as a checkpoint: it is neither a state.pt nor a model.safetensors")
    with safe_open(file, framework="pt") as opened:
        header = (opened.metadata() or {}).get(HEADER_KEY)
        if header is None:
            raise DataError(f"{file} has weights alone: use the state.pt of the checkpoint, or export it")
        state = json.loads(header)
        return {**state, "model": {name: opened.get_tensor(name) for name in opened.keys()}}  # noqa: SIM118 it is no dict


def _check_format(file: Path, found: Any) -> None:
    if type(found) is not int or found < 1:
        raise DataError(f"{file} is not a checkpoint of a recipe: its format is {str(found)[:100]!r}")
    if found > FORMAT:
        raise DataError(
            f"{file} was written by a newer version: it has format {found}, and this one reads formats up to {FORMAT}. "
            "Install a newer torchyard"
        )


def _are_weights(model: Any) -> bool:
    return isinstance(model, Mapping) and all(
        isinstance(name, str) and isinstance(value, Tensor) and _is_plain(value) for name, value in model.items()
    )


def _is_plain(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and not (tensor.is_quantized or tensor.is_complex() or tensor.is_meta)


def _reason(error: Exception) -> str:
    if isinstance(error, pickle.UnpicklingError):
        return _OTHER_OBJECTS
    return reason(error)
