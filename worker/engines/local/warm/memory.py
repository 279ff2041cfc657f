"""Releases memory that a warm process does not need, and joins the pages of the rest, which each fork has to list."""

from collections.abc import Iterator
import ctypes
from dataclasses import dataclass
from pathlib import Path
import re

_MADV_DONTNEED = 4
_MADV_COLLAPSE = 25
"""Since Linux 6.1."""
_HUGE = 2 << 20
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ (\d+) *(.*)")


@dataclass
class _Mapping:
    start: int
    end: int
    from_file: bool
    writable: bool
    changed: bool = False


def release_file_pages() -> None:
    """Releases the resident pages of libraries that equal their file: they can be read from the page cache again.

    The loader has read 300 MB of them. A fork does not inherit them.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    for mapping in _mappings():
        if mapping.from_file and not mapping.writable and not mapping.changed:
            libc.madvise(ctypes.c_void_p(mapping.start), ctypes.c_size_t(mapping.end - mapping.start), _MADV_DONTNEED)


def join_pages() -> Iterator[int]:
    """Joins the small pages of this process's own memory into huge ones. Yields the address of each, once it is tried.

    A fork copies a table with an entry for each page, and its end takes it down again: for 400 MB of small pages that
    is 13 ms, for huge ones 4. An attempt forks four times. What a child changes is copied in small pages all the same.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    own = [mapping for mapping in _mappings() if mapping.writable and mapping.changed and not mapping.from_file]
    for mapping in own:
        first = -(-mapping.start // _HUGE) * _HUGE
        for address in range(first, mapping.end - _HUGE + 1, _HUGE):
            # A kernel that cannot, or a part that is not in use, is left as it is.
            libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(_HUGE), _MADV_COLLAPSE)
            yield address


def _mappings() -> list[_Mapping]:
    mappings: list[_Mapping] = []
    for line in Path("/proc/self/smaps").read_text().splitlines():
        header = _MAPPING.fullmatch(line)
        if header is not None:
            start, end, mode, inode, path = header.groups()
            from_file = inode != "0" and path.startswith("/")
            mappings.append(_Mapping(int(start, 16), int(end, 16), from_file, "w" in mode))
        elif line.startswith(("Anonymous:", "Swap:")) and not line.endswith(" 0 kB"):  # the linker has changed it
            mappings[-1].changed = True
    return mappings
