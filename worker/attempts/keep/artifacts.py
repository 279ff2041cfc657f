"""Publishes the files that an attempt left in `artifacts` of its run directory, once all its processes have ended."""

from collections.abc import Callable, Iterator, Sequence

from store.worker.records import DEFAULTS, BlobStore, OutputLimits, Room
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.wire.text import printable
from worker.attempts.files.walking import TooMany, Walk
from worker.attempts.keep.left_files import LeftFiles
from worker.host.looks import Match
from worker.host.mask import Mask

_BASE = "artifacts"
_MOST_ENTRIES = 50_000
"""Entries of folders that are looked at."""
_MOST_NAMED = 10
"""Files that the message about those left out names."""
_LONGEST_NAMED = 100


class LeftOut:
    """The files that are not stored, of which a message tells."""

    def __init__(self, mask: Mask | None = None) -> None:
        self._mask = mask or Mask()
        self._count = 0
        self._named: list[str] = []

    def add(self, parts: Sequence[str], why: str) -> None:
        """Notes one file, or one folder with all below it."""
        self._count += 1
        if len(self._named) < _MOST_NAMED:
            self._named.append(f"{printable(self._mask.text('/'.join(parts)))[-_LONGEST_NAMED:]} ({why})")

    def message(self) -> str | None:
        """Returns the message, or None if nothing was left out."""
        if not self._count:
            return None
        more = self._count - len(self._named)
        listed = ", ".join(sorted(self._named)) + (f", and {more} more" if more else "")
        return f"{self._count} of the files in artifacts {'is' if self._count == 1 else 'are'} not stored: {listed}"


class Artifacts(LeftFiles):
    """The files in `artifacts` of one attempt."""

    name = "artifacts"

    def __init__(
        self,
        run: RunDir,
        blobs: BlobStore,
        *,
        room: Callable[[], Room],
        limits: OutputLimits = DEFAULTS,
        mask: Mask | None = None,
    ) -> None:
        super().__init__(run.job, blobs, room=room, limits=limits, mask=mask)
        self._left_out = LeftOut(self._mask)

    def message(self) -> str | None:
        return self._left_out.message()

    def _look(self, *, final: bool) -> Iterator[Match | None]:
        self._left_out = LeftOut(self._mask)
        matches: list[Match] = []
        try:
            for item in Walk(self._root, (_BASE,), most=_MOST_ENTRIES).entries():
                if item is None:
                    yield None
                elif item.why_not is not None or item.status is None:
                    self._left_out.add(item.parts or (_BASE,), item.why_not or "cannot be read")
                elif self._is_stored(item.path, item.status):
                    continue
                elif self._mask.finds(item.path):
                    self._left_out.add(item.parts, "its path contains the value of a secret")
                else:
                    matches.append(Match((_BASE, *item.parts), item.status))
        except TooMany:
            self._left_out.add(("the rest",), f"there are more than {_MOST_ENTRIES} files and folders")
        yield from sorted(matches, key=lambda match: match.parts)

    def _path_of(self, match: Match) -> str:
        return "/".join(match.parts[1:])

    def _leave_out(self, match: Match, why: str) -> None:
        self._left_out.add(match.parts[1:], why)
