"""Reads tensors, or parts of them, from the safetensors files of a folder."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
import json
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor

from torchyard.contract.errors import DataError
from torchyard.models.openfile import OpenFile

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_THREADS = 4
_MOST_INDEX_BYTES = 64 << 20
_CONVERT = (
    "from transformers import AutoModelForCausalLM as M; M.from_pretrained({folder!r}).save_pretrained({folder!r})"
)
"""Makes safetensors of the weights in a folder. transformers loads those with `weights_only`."""


class Slice:
    """A tensor in a file. `slice[part]` is the part, and `slice[...]` the whole, mapped from the file: copy it."""

    def __init__(self, view: Any, *, name: str) -> None:
        """Raises DataError if its numbers are not floats that weights have."""
        if view.get_dtype() not in _DTYPES:
            raise DataError(f"{name} has numbers of the type {view.get_dtype()}, and not {', '.join(_DTYPES)}")
        self._view = view
        self.shape = torch.Size(view.get_shape())
        self.dtype = _DTYPES[view.get_dtype()]

    def __getitem__(self, part: Any) -> Tensor:
        return self._view[part]


class WeightFiles:
    """The open weight files of a folder."""

    def __init__(self, folder: Path) -> None:
        """Raises DataError, and what safetensors raises for a file that is none."""
        from safetensors import safe_open

        self.views: dict[str, Any] = {}
        """The tensors by the names that they have in the files."""
        self._files: list[OpenFile] = []
        for name, keys in self._expected(folder).items():
            file = self._file(folder, name)
            try:
                opened = safe_open(file.path, framework="pt")
            except Exception as error:  # the library's errors have no common base class
                raise DataError(f"{name} is incomplete, or no safetensors: copy it again ({error})") from error
            found = {key: opened.get_slice(key) for key in opened.keys()}  # noqa: SIM118 it is no dict
            _check_names(name, found, expected=keys, earlier=self.views)
            self.views |= found

    @property
    def sizes(self) -> dict[str, int]:
        """The bytes of each file, by its name."""
        return {file.name: file.size for file in self._files}

    def sha256(self, on_part: Callable[[], None] = lambda: None) -> dict[str, str]:
        """Returns the digest of each file by its name, computed by a few threads. Raises DataError.

        `on_part`: called in this thread whenever a part of a file was read.
        """
        parts: SimpleQueue[object] = SimpleQueue()
        unread = len(self._files)
        with ThreadPoolExecutor(_THREADS) as pool:
            hashed = [pool.submit(file.sha256, partial(parts.put, None)) for file in self._files]
            for each in hashed:
                each.add_done_callback(parts.put)
            while unread:
                unread -= parts.get() is not None  # of a file that ended, or that cannot be read
                on_part()
        self.check_unchanged()
        return {file.name: each.result() for file, each in zip(self._files, hashed, strict=True)}

    def check_unchanged(self) -> None:
        """Raises DataError if a file may have another content than when it was opened."""
        for file in self._files:
            file.check_unchanged()

    def _expected(self, folder: Path) -> Mapping[str, set[str]]:
        """Returns the names of the files, each with those of the tensors that an index says it has."""
        names = {path.name for path in folder.iterdir()}
        if SINGLE in names:
            return {SINGLE: set()}
        if INDEX in names:
            return _indexed(self._file(folder, INDEX).read(_MOST_INDEX_BYTES))
        if any(name.endswith((".bin", ".pt", ".pth")) for name in names):
            convert = _CONVERT.format(folder=str(folder))
            raise DataError(f"its weights are pickles, which are not loaded: convert them with python -c {convert!r}")
        raise DataError(f"there is no {SINGLE}, and no {INDEX}: a base has its weights in safetensors")

    def _file(self, folder: Path, name: str) -> OpenFile:
        file = OpenFile(folder, name)
        self._files.append(file)
        return file


def _indexed(content: bytes) -> dict[str, set[str]]:
    """Returns what an index says. Raises DataError."""
    try:
        entries = json.loads(content)["weight_map"].items()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{INDEX} is incomplete, or has no weight_map: copy it again") from error
    expected: dict[str, set[str]] = {}
    for key, name in entries:
        if not isinstance(name, str) or Path(name).name != name or name == INDEX:
            raise DataError(
                f"{INDEX} says that {key[:200]} is in {str(name)[:200]!r}, which is not a file of the folder"
            )
        expected.setdefault(name, set()).add(key)
    return expected


def _check_names(file: str, found: Mapping[str, Any], *, expected: set[str], earlier: Mapping[str, Any]) -> None:
    missing = sorted(expected - found.keys())
    if missing:
        raise DataError(f"{INDEX} says that {missing[0][:200]} is in {file}, which has no such tensor: copy it again")
    twice = sorted(found.keys() & earlier.keys())
    if twice:
        raise DataError(f"{twice[0]} is in two files, of which {file} is one")
