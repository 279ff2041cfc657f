"""Finds the files that match patterns below a folder that a job writes. Follows no link."""

from collections.abc import Callable, Iterator, Sequence
import fnmatch
from pathlib import Path
import re

from worker.host.looks import Looks, Match, Parts

_DEEPEST = 12
_MOST_ENTRIES = 50_000
"""Entries of folders that one search looks at."""
_MOST_FOUND = 50_000
_WILD = re.compile(r"[*?[]")


class Search(Looks):
    """One search below `root`.

    `*`, `?` and `[…]` match within a name, `**` any folders; a name with a dot first only by a dot.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root, most=_MOST_ENTRIES)
        self.folders: dict[Parts, bool] = {}
        """The folders that `find` has found, and whether a pattern names it: without a wildcard in its last name, or by
        a `/` at its end."""
        self._names = Names()

    def find(self, base: Parts, patterns: Sequence[str]) -> dict[Parts, Match]:
        """Returns the files below `base`, which is below the root, by path. At most 50,000, of as many entries."""
        matches: dict[Parts, Match] = {}
        for pattern in patterns:
            wanted = tuple(part for part in pattern.split("/") if part not in {"", "."})
            names_folders = pattern.endswith("/")
            for match in self._expand(base, wanted, names_folders=names_folders):
                if len(matches) == _MOST_FOUND:
                    return matches
                matches[match.parts] = match
        return matches

    def _expand(self, folder: Parts, wanted: Parts, *, names_folders: bool) -> Iterator[Match]:
        if not wanted or len(folder) > _DEEPEST or self.is_cut:
            return
        first, *rest = wanted
        if first == "**":
            yield from self._expand(folder, tuple(rest), names_folders=names_folders)
        name = "*" if first == "**" else first
        here = self.entries(folder, lambda entry: self._names.match(entry.name, name))
        if not rest and first != "**":
            yield from () if names_folders else here.files
            for name in here.folders:
                named = names_folders or _WILD.search(first) is None
                self.folders[*folder, name] = named or self.folders.get((*folder, name), False)
        for name in here.folders:
            inner = wanted if first == "**" else tuple(rest)
            yield from self._expand((*folder, name), inner, names_folders=names_folders)


class Names:
    """Compares names with parts of patterns. What it made of a part goes with it: `fnmatch` keeps 32,768 for ever."""

    def __init__(self) -> None:
        self._made: dict[str, Callable[[str], object]] = {}

    def match(self, name: str, part: str) -> bool:
        if name.startswith(".") and not part.startswith("."):
            return False
        made = self._made.get(part)
        if made is None:
            made = self._made[part] = re.compile(fnmatch.translate(part)).match
        return made(name) is not None
