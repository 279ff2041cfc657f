"""Shards: a data set's files in tars that lie in one folder, with an index of where in them each file lies."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
import json
import re
from typing import Any, NamedTuple, cast

from torchyard.contract.errors import DataError

INDEX = "index.jsonl"
"""The name of the index: a line with FORMAT and the shards, and then one for each file."""
SUFFIX = ".tar"
FORMAT = 1
MOST_FILES = 10_000_000
MOST_FILE_BYTES = 1 << 30
"""A file is read whole: it may have this many bytes."""
MOST_NAME_BYTES = 1000

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_LEFT_BY_PROGRAMS = frozenset(
    {
        *("__macosx", "icon\r"),
        *("thumbs.db", "ehthumbs.db", "desktop.ini", "$recycle.bin", "system volume information"),
        *("@eadir", "lost+found"),
    }
)


class Entry(NamedTuple):
    """Where a file lies."""

    shard: int
    """The position of its tar among the shards."""
    name: str
    offset: int
    """The byte of the tar at which the file's bytes begin."""
    size: int


@dataclass(frozen=True)
class Index:
    """The files of a folder of shards."""

    shards: Mapping[str, int]
    """The size of each tar, by its name below the folder."""
    entries: list[Entry]


def index_lines(index: Index) -> Iterator[str]:
    """Returns the lines of an index's file."""
    yield json.dumps({"format": FORMAT, "shards": [*map(list, index.shards.items())]}) + "\n"
    for entry in index.entries:
        yield json.dumps(entry, ensure_ascii=False, separators=(",", ":")) + "\n"


def parse_index(lines: Iterable[str], *, where: str) -> Index:
    """Returns the index that the lines describe, whoever wrote them. Raises DataError, with the file's name `where`."""
    numbered = enumerate(lines, start=1)
    shards = _shards(next(numbered, (1, ""))[1], f"{where}, line 1")
    sizes, entries = list(shards.values()), list[Entry]()
    for number, line in numbered:
        if number > MOST_FILES:
            raise DataError(f"{where} has more than {MOST_FILES:,} lines")
        entries.append(_entry(line, sizes, f"{where}, line {number}"))
    return Index(shards, entries)


def name_problem(name: str) -> str | None:
    """Returns what is wrong with a file's name, or None. No name is ever used as a path."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "is not UTF-8"
    if not 0 < size <= MOST_NAME_BYTES:
        return f"must have 1 to {MOST_NAME_BYTES} bytes"
    if _CONTROL.search(name):
        return "has a control character"
    if not {"", ".", ".."}.isdisjoint(name.split("/")):
        return "must be relative, with no empty part, no `.` and no `..`"
    return None


def is_hidden(name: str) -> bool:
    """Returns whether a file or a folder of this name is no part of the data."""
    return name.startswith(".") or name.casefold() in _LEFT_BY_PROGRAMS


def is_plain(name: str) -> bool:
    """Returns whether a tar's header holds the name as it is."""
    return len(name) <= 100 and name.isascii()


def _shards(line: str, where: str) -> dict[str, int]:
    head = _json(line, where)
    if not isinstance(head, dict):
        raise DataError(f"{where}: is not the first line of an index of shards")
    head = cast(dict[str, Any], head)
    if head.get("format") != FORMAT:
        raise DataError(f"{where}: the index has format {str(head.get('format'))[:20]}, this version reads {FORMAT}")
    rows = head.get("shards")
    if not isinstance(rows, list):
        raise DataError(f"{where}: `shards` is not a list")
    shards: dict[str, int] = {}
    for row in cast(list[Any], rows):
        match row:
            case [str(name), int(size)] if size >= 0 and name not in shards and name_problem(name) is None:
                shards[name] = size
            case _:
                raise DataError(f"{where}: {str(row)[:200]!r} is not a name of a shard and its size")
    return shards


def _entry(line: str, sizes: list[int], where: str) -> Entry:
    match _json(line, where):
        case [int(shard), str(name), int(offset), int(size)]:
            pass
        case _:
            raise DataError(f"{where}: is not a shard, a name, an offset and a size")
    if not 0 <= shard < len(sizes):
        raise DataError(f"{where}: there is no shard {shard}")
    if problem := name_problem(name):
        raise DataError(f"{where}: the name {name[:200]!r} {problem}")
    if not 0 <= size <= MOST_FILE_BYTES:
        raise DataError(f"{where}: {name} has {size} bytes; a file may have {MOST_FILE_BYTES}")
    if offset <= 0 or offset % 512 or offset + size > sizes[shard]:
        raise DataError(f"{where}: {name} does not lie within its shard, which has {sizes[shard]} bytes")
    return Entry(shard, name, offset, size)


def _json(line: str, where: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: is not JSON: {error}") from error
