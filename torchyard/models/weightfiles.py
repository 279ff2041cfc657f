"""Reads weights in safetensors: tensors by their names in one or several files of a folder, each as a slice."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
import hashlib
import json
import os
from pathlib import Path
import stat
from typing import Any
import weakref

import torch
from torch import Tensor

from torchyard.contract.errors import DataError

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_CHUNK = 1 << 20
_THREADS = 4
_MOST_INDEX_BYTES = 64 << 20


class Slice:
    """A tensor in a file. `slice[part]` reads the part, `slice[...]` the whole."""

    def __init__(self, view: Any, dtype: torch.dtype) -> None:
        self._view = view
        self.shape = torch.Size(view.get_shape())
        self.dtype = dtype

    def __getitem__(self, part: Any) -> Tensor:
        return self._view[part]


class OpenFile:
    """A file that stays open until this is forgotten. Its path may be another's by then."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, also if it is not regular, such as a pipe that would block."""
        self.path = path
        self.descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._closed = weakref.finalize(self, os.close, self.descriptor)
        self._status = os.fstat(self.descriptor)
        if not stat.S_ISREG(self._status.st_mode):
            raise OSError(f"{path.name} is not a regular file")

    def read(self, most: int) -> bytes:
        """Returns the content. Raises DataError if it is longer than `most` bytes."""
        if self._status.st_size > most:
            raise DataError(f"{self.path.name} has {self._status.st_size} bytes, more than {most}")
        return os.pread(self.descriptor, most, 0)

    def sha256(self) -> str:
        digest, place = hashlib.sha256(), 0
        while chunk := os.pread(self.descriptor, _CHUNK, place):
            digest.update(chunk)
            place += len(chunk)
        return digest.hexdigest()

    def check_unchanged(self) -> None:
        """Raises DataError if the content may be another than when the file was opened."""
        now, then = os.fstat(self.descriptor), self._status
        if (now.st_size, now.st_mtime_ns, now.st_ctime_ns) != (then.st_size, then.st_mtime_ns, then.st_ctime_ns):
            raise DataError(f"{self.path.name} was changed while it was read")


class WeightFiles(Mapping[str, Slice]):
    """The tensors in the weight files of a folder, by name. Raises DataError, OSError, and what safetensors raises."""

    def __init__(self, folder: Path) -> None:
        from safetensors import safe_open

        self.files: dict[str, OpenFile] = {}
        self._slices: dict[str, Slice] = {}
        for name in self._weight_files(folder):
            file = self.files[name] = OpenFile(folder / name)
            opened = safe_open(f"/dev/fd/{file.descriptor}", framework="pt")  # not the path, which may be another now
            for key in opened.keys():  # noqa: SIM118 it is no dict
                view = opened.get_slice(key)
                if view.get_dtype() not in _DTYPES:
                    raise DataError(f"{key} in {name} has numbers of the type {view.get_dtype()}")
                self._slices[key] = Slice(view, _DTYPES[view.get_dtype()])

    def __getitem__(self, name: str) -> Slice:
        return self._slices[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._slices)

    def __len__(self) -> int:
        return len(self._slices)

    def sha256(self) -> dict[str, str]:
        """Returns the digest of each file."""
        with ThreadPoolExecutor(_THREADS) as pool:
            return dict(zip(self.files, pool.map(OpenFile.sha256, self.files.values()), strict=True))

    def check_unchanged(self) -> None:
        for file in self.files.values():
            file.check_unchanged()

    def _weight_files(self, folder: Path) -> list[str]:
        if (folder / SINGLE).exists() or not (folder / INDEX).exists():
            return [SINGLE]
        index = self.files[INDEX] = OpenFile(folder / INDEX)
        names = sorted(set(json.loads(index.read(_MOST_INDEX_BYTES))["weight_map"].values()))
        for name in names:
            if "/" in name or name in {"", ".", ".."}:
                raise DataError(f"{INDEX} names {name!r}, which is outside the folder")
        return names
