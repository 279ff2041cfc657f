"""The index of a checkpoint in several files: all that a state has beside tensors, and where its tensors lie.

    {"format": 1,
     "files":   [{"path": "state-00001-of-00002.safetensors", "size": 4096, "sha256": "…"}, …],
     "tensors": {"model/first.weight": {"dtype": "F32", "shape": [6, 5], "rows": [[0, 0, 3], [1, 3, 6]]},
                 "optimizer/state/0/step": {"dtype": "F32", "shape": [], "file": 0}, …},
     "state":   {"model": {"first.weight": {"$tensor": "model/first.weight"}}, "epoch": 1, …}}

A tensor lies in one file, by its name, or each file has some of its rows: the file's number, the first row and the row
after the last. Values that JSON does not have are objects with one key: `$tensor`, `$tuple`, `$float` (`nan`, `inf`,
`-inf`) and `$items` (a dict whose keys are not all texts, or texts with `$` in front). Nothing in an index is run.
"""

from collections.abc import Callable, Mapping, Sequence
import json
import math
import re
from typing import Any, NamedTuple

from torch import Tensor

from torchyard.contract.attempts.records import ManifestFile
from torchyard.contract.errors import DataError
from torchyard.states.dividedtensor import DividedTensor
from torchyard.states.tensorfile import DTYPES, NAMES, checked_shape, read_tensors

FORMAT = 1
MOST_BYTES = 256 << 20
"""Of an index."""
MOST_FILES = 1000

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
INSTEAD = "download the checkpoint again, or use another one"


class Shard(NamedTuple):
    """The rows of a tensor that one rank has."""

    local: Tensor
    shape: tuple[int, ...]
    """That of the whole tensor."""
    first: int
    """The number of its first row."""


class Described(NamedTuple):
    """A state without its tensors, and these by name."""

    tree: Any
    tensors: dict[str, Tensor | Shard]


def describe(state: Mapping[str, Any]) -> Described:
    """Returns what the index says of `state`, and the tensors by the names that they get: the path to them.

    All ranks get the same names for their shards of one tensor. Raises TypeError for what a checkpoint cannot have.
    """
    found: dict[str, Tensor | Shard] = {}
    names: dict[int, str] = {}

    def named(value: Tensor | Shard, path: str) -> str:
        name = names.setdefault(id(value.local if isinstance(value, Shard) else value), path)
        found.setdefault(name, value)
        return name

    return Described(_encoded(state, "", named), found)


def index_of(
    described: Described, *, files: Sequence[ManifestFile], rows: Sequence[Mapping[str, Sequence[int]]]
) -> bytes:
    """Returns the index. `rows`: for each file and each shard in it, the first row and the row after the last.

    What is no shard lies in the first file. Raises DataError if rows of a shard are in no file.
    """
    tensors: dict[str, Any] = {}
    for name, value in described.tensors.items():
        local, shape = (value.local, value.shape) if isinstance(value, Shard) else (value, tuple(value.shape))
        entry: dict[str, Any] = {"dtype": NAMES[local.dtype], "shape": [*shape]}
        tensors[name] = entry
        if not isinstance(value, Shard):
            entry["file"] = 0
            continue
        parts = [[number, *there[name]] for number, there in enumerate(rows) if name in there]
        entry["rows"] = sorted(parts, key=lambda part: part[1])
        _check_rows(entry["rows"], shape[0], name)
    listed = [file.to_dict() for file in files]
    content = {"format": FORMAT, "files": listed, "tensors": tensors, "state": described.tree}
    return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def read_state(raw: bytes, content_of: Callable[[str], memoryview], *, what: str) -> dict[str, Any]:
    """Returns the state of an index. Its tensors are mapped, and those in several files are read when they are used.

    `content_of` returns the bytes of the file with a plain name, and raises DataError without one. `what` names the
    checkpoint in errors. Raises DataError if anything is missing, torn or not what the index says.
    """
    index = _parsed(raw, what)
    if index.get("format") != FORMAT:
        found = str(index.get("format"))[:20]
        formats = f"its index has the format {found}, and this version reads {FORMAT}"
        raise DataError(f"{what}: {formats}: install the torchyard that wrote it")
    try:
        paths = [_checked_file(file, what) for file in index["files"]]
        if len(paths) > MOST_FILES or len({*paths}) < len(paths):
            raise ValueError(f"{len(paths)} files, of which some have one name, or too many")
        contents = [
            _content(content_of, path, size=file["size"], what=what)
            for path, file in zip(paths, index["files"], strict=True)
        ]
        tensors = {name: _Entry(name, entry, contents, what).tensor() for name, entry in index["tensors"].items()}
        return _decoded(index["state"], tensors)
    except DataError as error:
        raise DataError(f"{error.message}: {INSTEAD}") from error
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise _damaged(error, what) from error


def _parsed(raw: bytes, what: str) -> dict[str, Any]:
    try:
        index = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise _damaged(error, what) from error
    if not isinstance(index, dict):
        raise _damaged(TypeError(f"it is a {type(index).__name__}"), what)
    return index


def _damaged(error: Exception, what: str) -> DataError:
    said = (str(error) or type(error).__name__).splitlines()[0][:200]
    return DataError(f"{what}: its index is damaged ({said}): {INSTEAD}")


def _encoded(value: Any, path: str, named: Callable[[Tensor | Shard, str], str]) -> Any:
    if isinstance(value, (Tensor, Shard)):
        return {"$tensor": named(value, path)}
    if isinstance(value, Mapping):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: _encoded(item, _below(path, key), named) for key, item in value.items()}
        items = [[_encoded(key, path, named), _encoded(item, _below(path, key), named)] for key, item in value.items()]
        return {"$items": items}
    if isinstance(value, (list, tuple)):
        items = [_encoded(item, _below(path, number), named) for number, item in enumerate(value)]
        return {"$tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": str(float(value))}
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise TypeError(f"a checkpoint cannot have {path}, a {type(value).__name__}")


def _below(path: str, key: object) -> str:
    text = str(key).replace("~", "~0").replace("/", "~1")
    return f"{path}/{text}" if path else text


def _decoded(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_decoded(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    special = next((key for key in value if key.startswith("$")), None)
    if special is not None:
        (inner,) = value.values()
        return _special(special, inner, tensors)
    return {key: _decoded(item, tensors) for key, item in value.items()}


def _special(kind: str, inner: Any, tensors: Mapping[str, Tensor]) -> Any:
    match kind:
        case "$tensor":
            return tensors[inner]
        case "$tuple":
            return tuple(_decoded(item, tensors) for item in inner)
        case "$items":
            return {_decoded(key, tensors): _decoded(item, tensors) for key, item in inner}
        case "$float" if inner in {"nan", "inf", "-inf"}:
            return float(inner)
        case _:
            raise ValueError(f"{kind[:100]} is not a kind of value")


def _checked_file(file: Mapping[str, Any], what: str) -> str:
    path, size = file["path"], file["size"]
    if not isinstance(path, str) or _PLAIN_NAME.fullmatch(path) is None:
        raise DataError(f"{what}: its index names {str(path)[:100]!r}, which is not a name of a file in it")
    if type(size) is not int:
        raise ValueError(f"{path} has no size")
    return path


def _content(content_of: Callable[[str], memoryview], path: str, *, size: int, what: str) -> dict[str, Tensor]:
    content = content_of(path)
    if len(content) != size:
        raise DataError(f"{what}: its file {path} is incomplete: it has {len(content)} bytes, and {size} are listed")
    return read_tensors(content, what=f"{what}: its file {path}")


class _Entry:
    """What the index says of one tensor."""

    def __init__(
        self, name: str, entry: Mapping[str, Any], contents: Sequence[Mapping[str, Tensor]], what: str
    ) -> None:
        self._name, self._entry, self._contents = name, entry, contents
        self._what = f"{what}: its tensor {name[:200]}"
        self._dtype, self._shape = DTYPES[entry["dtype"]], checked_shape(entry["shape"])

    def tensor(self) -> Tensor:
        """Returns it, mapped. Raises DataError, and what a wrong entry raises."""
        if "rows" not in self._entry:
            return self._part(self._entry["file"], self._shape)
        rows = self._entry["rows"]
        if not self._shape or len(rows) > MOST_FILES:
            raise DataError(f"{self._what} has rows in {len(rows)} files")
        _check_rows(rows, self._shape[0], self._what)
        parts = [(first, self._part(number, (behind - first, *self._shape[1:]))) for number, first, behind in rows]
        return parts[0][1] if len(parts) == 1 else DividedTensor(self._shape, parts)

    def _part(self, number: Any, shape: tuple[int, ...]) -> Tensor:
        if type(number) is not int or not 0 <= number < len(self._contents):
            raise DataError(f"{self._what} lies in file {str(number)[:20]}, and there are {len(self._contents)}")
        found, where = self._contents[number].get(self._name), f"file {number + 1} of {len(self._contents)}"
        if found is None:
            raise DataError(f"{self._what} is not in {where}")
        if found.dtype != self._dtype or found.shape != shape:
            said = f"{tuple(found.shape)}, {found.dtype} in {where}, and {shape}, {self._dtype} by the index"
            raise DataError(f"{self._what} is {said}")
        return found


def _check_rows(rows: Sequence[Sequence[int]], count: int, what: str) -> None:
    """Raises DataError unless the parts are all rows from 0 to `count`, one after the other."""
    end = 0
    for number, first, behind in rows:
        if not type(number) is type(first) is type(behind) is int or behind <= first:
            raise DataError(f"{what} has the rows {first} to {behind} in a file, which is not possible")
        if first != end:
            problem = "are in no file" if first > end else "are in two files"
            raise DataError(f"{what}: its rows {min(first, end)} to {max(first, end)} {problem}")
        end = behind
    if end != count or not rows:
        raise DataError(f"{what} has {count} rows, and its files have {end}")
