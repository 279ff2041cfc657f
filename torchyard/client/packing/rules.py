"""What a user says of the names of a folder's files: by `include`, and by the lines of its .torchyardignore."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import os
from pathlib import Path
import re
from typing import TYPE_CHECKING

from torchyard.client.packing import git
from torchyard.contract.errors import ConfigError
from torchyard.host.untrusted import read_given

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILE = ".torchyardignore"
"""A file of the folder, in the syntax of .gitignore. What it matches is not packed; what a `!` line matches is."""
MOST_IGNORE_BYTES = 1 << 20
_PRIVATE = ".env"
"""Is part of the names of files that mostly hold passwords."""
_SPECIAL = re.compile(r"([\\*?\[\]!# ])")
"""Characters that mean something in a line of .gitignore."""


def bringing_back(folder: Path) -> list[str]:
    """Returns the lines of a folder's IGNORE_FILE that may have packed what git ignores, or what may hold passwords.

    Raises ConfigError.
    """
    lines = [line for line in _lines(folder / IGNORE_FILE) if line.startswith("!")]
    return [line for line in lines if _PRIVATE in line.lower() or git.in_work_tree(folder)]


class Rules:
    """The rules of one folder. Raises ConfigError for a file that cannot be read, and for paths outside the folder."""

    def __init__(self, folder: Path, include: Sequence[str] = ()) -> None:
        self._folder = folder
        self._lines = _lines(folder / IGNORE_FILE)
        self._own = _spec(self._lines, str(folder / IGNORE_FILE)) if self._lines else None
        self._include = {text: _spec([_pattern(folder, text)], f"--include {text}") for text in include}

    @property
    def bring_back(self) -> bool:
        """Whether a rule may have what git ignores packed."""
        return bool(self._include) or any(line.startswith("!") for line in self._lines)

    def wants(self, name: str) -> bool | None:
        """Whether the file is packed: by `include`, else by the last line that matches it. None: no rule says so."""
        name = _readable(name)
        if any(spec.match_file(name) for spec in self._include.values()):
            return True
        return self._by_line(name)

    def wants_private(self, name: str) -> bool:
        """Whether a `!` line names such files themselves, and not a folder around them alone."""
        index = self._line_of(_readable(name))
        return index is not None and self._brings_back(index) and _PRIVATE in self._lines[index].lower()

    def check_included(self, packed: Iterable[str], skipped: dict[str, str]) -> None:
        """Raises ConfigError if a path or a pattern to include is that of no file that is packed."""
        names = [_readable(name) for name in packed]
        for text, spec in self._include.items():
            if any(spec.match_file(name) for name in names):
                continue
            why = next(
                (f": {name}: {reason}" for name, reason in skipped.items() if spec.match_file(_readable(name))), ""
            )
            raise ConfigError(f"--include {text} names no file of {self._folder} that can be packed{why}")

    def _by_line(self, name: str) -> bool | None:
        index = self._line_of(name)
        return None if index is None else self._brings_back(index)

    def _line_of(self, name: str) -> int | None:
        """Returns the last line that matches the file or a folder around it. A `!` line of a folder brings no file back
        that a line before it matches by itself.
        """
        # Not by `check_file`, which lets a line of a file go first where re2 is not installed.
        found, is_of_file = None, False
        for index, pattern in enumerate(() if self._own is None else self._own.patterns):
            matched = None if pattern.include is None else pattern.match_file(name)
            if matched is None:
                continue
            is_own = matched.match.lastgroup is None  # the one group is the slash behind a folder
            if is_own or pattern.include or not is_of_file:
                found, is_of_file = index, is_own
        return found

    def _brings_back(self, index: int) -> bool:
        return self._lines[index].startswith("!")


def _readable(name: str) -> str:
    """Returns the name as patterns can be compared with it, which are UTF-8."""
    return os.fsencode(name).decode(errors="replace")


def _lines(path: Path) -> list[str]:
    try:
        return read_given(path, MOST_IGNORE_BYTES).decode("utf-8").splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None


def _pattern(folder: Path, text: str) -> str:
    """Returns the line of .gitignore for a path, which may have any characters, or for a pattern."""
    path = os.path.normpath(folder / text)
    if os.path.lexists(path):
        inside = os.path.relpath(path, folder)
        if inside == os.pardir or inside.startswith(f"{os.pardir}{os.sep}"):
            raise ConfigError(f"--include {text} is outside {folder}: name such data with a mount")
        return "/*" if inside == os.curdir else "/" + _SPECIAL.sub(r"\\\1", inside)
    return f"\\{text}" if text.startswith(("!", "#")) else text.removeprefix("./")


def _spec(lines: Sequence[str], where: str) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec

    try:
        return GitIgnoreSpec.from_lines(lines)
    except (ValueError, re.error) as error:
        raise ConfigError(f"{where} cannot be read: {error}") from None
