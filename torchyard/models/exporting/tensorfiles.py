"""Writes files of safetensors from the tensors in memory: one after the other, without a copy of them all."""

from collections.abc import Iterable, Iterator, Mapping
import json
import os
from pathlib import Path
import re

from torch import Tensor

from torchyard.contract.errors import ExportError
from torchyard.run.tensors import on_their_own

MOST_BYTES = 5_000_000_000
"""Of the tensors in one file of a model."""
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
NAMES = (WEIGHTS, INDEX, "model-[0-9][0-9][0-9][0-9][0-9]-of-[0-9][0-9][0-9][0-9][0-9].safetensors")
"""Patterns of the files that `write_model` writes."""

_FAILED = re.compile(r"os error (\d+)")


def write(path: Path, tensors: Mapping[str, Tensor], *, metadata: Mapping[str, str]) -> None:
    """Writes one file, with `metadata` in its header. Raises OSError and ExportError."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file(on_their_own(tensors), path, metadata=dict(metadata))
    except SafetensorError as error:
        if found := _FAILED.search(str(error)):
            number = int(found[1])
            raise OSError(number, os.strerror(number)) from error
        raise ExportError(f"the weights cannot be written: {error}") from error


def write_model(folder: Path, tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Writes the weights of a model of transformers: one file, or several with an index. Raises OSError.

    The tensors of one file are in memory at a time.
    """
    parts: list[list[str]] = []
    total = 0
    for part in _parts(tensors):
        write(folder / f"{len(parts)}.part", part, metadata={"format": "pt"})
        parts.append([*part])
        total += sum(tensor.nbytes for tensor in part.values())
    if len(parts) == 1:
        (folder / "0.part").rename(folder / WEIGHTS)
        return
    files = [f"model-{number:05}-of-{len(parts):05}.safetensors" for number in range(1, len(parts) + 1)]
    for number, file in enumerate(files):
        (folder / f"{number}.part").rename(folder / file)
    where = {name: file for names, file in zip(parts, files, strict=True) for name in names}
    index = {"metadata": {"total_size": total}, "weight_map": where}
    (folder / INDEX).write_text(json.dumps(index, indent=2, sort_keys=True))


def _parts(tensors: Iterable[tuple[str, Tensor]]) -> Iterator[dict[str, Tensor]]:
    part: dict[str, Tensor] = {}
    size = 0
    for name, tensor in tensors:
        if part and size + tensor.nbytes > MOST_BYTES:
            yield part
            part, size = {}, 0
        part[name] = tensor
        size += tensor.nbytes
    if part:
        yield part
