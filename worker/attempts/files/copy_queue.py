"""The files of an attempt that wait to be copied into the blob store, and the one that is copied now."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Generic, Protocol, TypeVar

from torchyard.contract.errors import DataError
from worker.attempts.files.copying import MIN_FILE_COST
from worker.host.looks import Match


class Queued(Protocol):
    """The copy of a file, or of a folder that is one checkpoint."""

    @property
    def match(self) -> Match: ...

    @property
    def copied(self) -> int:
        """Bytes so far."""
        ...

    def copy_some(self, limit: int) -> int: ...

    def discard(self) -> None: ...


C = TypeVar("C", bound=Queued)


class CopyQueue(Generic[C]):
    """Copies one file after the other."""

    def __init__(self) -> None:
        self._waiting: deque[Match] = deque()
        self._copy: C | None = None

    @property
    def unfinished(self) -> bool:
        """Whether files wait to be copied."""
        return self._copy is not None or bool(self._waiting)

    @property
    def copied(self) -> int:
        """Bytes of the unfinished copy."""
        return 0 if self._copy is None else self._copy.copied

    def add(self, matches: Iterable[Match]) -> None:
        self._waiting.extend(matches)

    def copy(
        self, budget: int, *, begin: Callable[[Match], C], refuse: Callable[[Match, DataError], None]
    ) -> Generator[C]:
        """Copies at most about `budget` bytes, and yields each copy as soon as it is complete. Raises OSError.

        `begin` makes the copy of a file, and raises DataError if the file cannot be stored. `refuse` is called for each
        such file, and with why.
        """
        while budget > 0 and self.unfinished:
            copy = self._copy
            match = self._waiting.popleft() if copy is None else copy.match
            try:
                copy = self._copy = copy or begin(match)
                budget = copy.copy_some(budget)
            except DataError as error:
                self._discard_copy()
                refuse(match, error)
                budget -= MIN_FILE_COST
                continue
            if budget:
                self._copy = None
                yield copy

    def discard(self) -> None:
        """Forgets the files that wait, and discards an unfinished copy. Raises OSError."""
        self._waiting.clear()
        self._discard_copy()

    def _discard_copy(self) -> None:
        copy, self._copy = self._copy, None
        if copy is not None:
            copy.discard()
