"""Says which patterns of a job's spec match nothing that is there."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
import time

from torchyard.contract.wire.text import printable
from worker.attempts.files.walking import Patterns, TooMany, Walk
from worker.host.looks import Parts

AFTER_S = 300.0
"""How long an attempt runs until it is said."""
_MOST_ENTRIES = 100_000
"""Entries of folders that are looked at. With more, nothing is said."""


class Unmatched:
    """`patterns`: those of each key of the spec. `folders`: below `root`, the folders that they are relative to.

    `began_ns`: since when its program runs, None before. `note`: what else to say.
    """

    def __init__(
        self,
        root: Path,
        folders: Sequence[Parts],
        patterns: Mapping[str, Sequence[str]],
        *,
        began_ns: Callable[[], int | None],
        note: str = "",
    ) -> None:
        self._root = root
        self._folders = folders
        self._named = [(pattern, key) for key, several in patterns.items() for pattern in several]
        self._began_ns = began_ns
        self._note = note
        self._texts: dict[bool, str | None] = {}
        """What was found, at the end and before."""

    def text(self, *, final: bool) -> str | None:
        """Returns what to tell the owner: while the job runs, once it has run for some time. None: nothing."""
        if not self._named or (not final and not self._has_run_for_long()):
            return None
        if final not in self._texts:
            unmatched = self._find()
            listed = ", ".join(f"{printable(pattern)!r} ({key})" for pattern, key in unmatched)
            says = "nothing matches" if final else "nothing matches so far"
            below = self._below([pattern for pattern, _ in unmatched])
            self._texts[final] = f"{says}: {listed}{below}{self._note}" if unmatched else None
        return self._texts[final]

    def _has_run_for_long(self) -> bool:
        began_ns = self._began_ns()
        return began_ns is not None and time.time_ns() >= began_ns + AFTER_S * 1e9

    def _find(self) -> list[tuple[str, str]]:
        matched: set[int] = set()
        patterns = Patterns([pattern for pattern, _ in self._named])
        for folder in self._folders:
            try:
                for item in Walk(self._root, folder, most=_MOST_ENTRIES, patterns=patterns).entries():
                    matched |= frozenset() if item is None else item.patterns
                    if len(matched) == len(self._named):
                        return []
            except TooMany:
                return []
        return [named for index, named in enumerate(self._named) if index not in matched]

    def _below(self, patterns: Sequence[str]) -> str:
        """Returns a file that a pattern would match in another folder, with that pattern; else an empty text."""
        anywhere = [f"**/{pattern}" for pattern in patterns if not pattern.startswith("**/")]
        try:
            for folder in self._folders if anywhere else ():
                for item in Walk(self._root, folder, most=_MOST_ENTRIES, patterns=Patterns(anywhere)).entries():
                    if item is not None and item.patterns:
                        return f"; {printable(item.path)!r} matches {printable(anywhere[min(item.patterns)])!r}"
        except TooMany:
            pass
        return ""
