"""How the ranks look through a source: rank 0 reads, says how far it is, and the others take what it has found."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
import json
from pathlib import Path
import time
from typing import Any, Literal, Self, TypeVar
import zlib

from torchyard.contract.bundles.names import digest_in
from torchyard.contract.errors import DataError
from torchyard.run import Run
from trainer.data.decoded import Decoded, prepare
from trainer.data.digests import listing_digest, listing_digests
from trainer.data.identity import Identity
from trainer.world import World

T = TypeVar("T")

EVERY_S = 5.0
"""How often rank 0 says that it still reads."""
MAX_COMPARED = 1000
"""The ranks compare the sizes of at most this many files, evenly spaced, with those of rank 0."""


@dataclass(frozen=True)
class Files:
    """What rank 0 has found in a source: the names of files below `root`, in an order that any look finds again."""

    root: Path
    names: list[str]
    digest: str
    """Of their names and sizes."""
    stamp: str | None
    """Changes with any content; None: see `listing_digests`."""

    @property
    def identity(self) -> Identity:
        return Identity(digest=self.digest, root=self.root, files=tuple(sorted(self.names)))


@dataclass
class Scan:
    """Who looks through a source: without a `world` this process alone, and without a `run` it says nothing."""

    world: World | None = None
    run: Run | None = None
    step: int = 0
    """The step at which the run resumes."""
    bundle: str | None = None
    """The digest of the source, if that is a bundle."""
    alive: Callable[[], None] | None = None
    """Called while this process reads, where there is nothing to say."""
    confined: bool = False
    """Whether a stranger's tokenizer reads texts in a process with limits, and not within those of a job."""
    _due: float = 0.0
    _told: bool = False

    @classmethod
    def of_run(cls, run: Run, world: World, *, source: str, step: int = 0) -> Self:
        """Returns that of a job. `source`: as its configuration names it."""
        return cls(world, run, step=step, bundle=digest_in(source) if run.data else None)

    def share(self, read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Returns what `read` returns on rank 0: JSON. A collective. Every rank raises the DataError of rank 0."""
        self._due = time.monotonic() + EVERY_S
        if self.world is None or self.world.size == 1:
            return read()
        if self.world.rank:
            while not (answer := self.world.from_rank_0(b"")):
                pass  # it still reads
        else:
            answer = _encoded(read)
            self.world.from_rank_0(answer)
        shared = json.loads(zlib.decompress(answer))
        if "error" in shared:
            raise DataError(shared["error"])
        return shared["found"]

    def each(self, files: Sequence[T], what: str) -> Iterator[T]:
        """Yields the files, on rank 0 within `share`. If that takes long, the job is told `what` is done with them.

        The service sees that the run is not stuck, and no other rank waits too long in one collective.
        """
        for file in files:
            self.reads(f"{what} of {len(files):,} files")
            yield file

    def reads(self, what: str) -> None:
        """Tells the job and the other ranks that rank 0 still reads, if it has not lately: on rank 0 within `share`."""
        now = time.monotonic()
        if now >= self._due:
            self._due = now + EVERY_S
            self._tell(what)

    def listing(self, names: list[str], root: Path) -> dict[str, Any]:
        """Returns the part of what `share` returns that makes `Files`. Raises DataError."""
        digest, stamp = listing_digests(root, self.each(names, "reads the sizes"))
        return {"files": names, "digest": digest, "stamp": stamp}

    def compare(self, files: Files) -> None:
        """Checks that each rank finds the files that rank 0 has found. A collective. Raises DataError."""
        if self.world is None or self.world.size == 1:
            return
        some = [files.root / name for name in files.names[:: max(1, len(files.names) // MAX_COMPARED)]]
        try:
            own = listing_digest(files.root, some)
        except DataError as error:
            own = error.message
        if self.world.any(self.world.from_rank_0(own) != own):
            raise DataError(f"{files.root}: the ranks read different data: is another program writing to the source?")

    def decoded(self, files: Files, form: dict[str, Any], *, count: int, length: int) -> Decoded | None:
        """Returns the cache of `count` decoded pictures, each of `length` bytes, if there is one on this host.

        `form`: JSON of all that the pixels depend on beside the files.
        """
        on_one_host = self.world is None or self.world.size == self.world.local_size
        known = self.bundle or (files.stamp if on_one_host else None)  # other hosts may have other files
        if known is None:
            return None
        return prepare({"data": known, **form}, count=count, length=length)

    def beat(self) -> None:
        """Tells the service that this process is not stuck, if it has not lately. No collective."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + EVERY_S
        if self.alive is not None:
            self.alive()
        if self.run is not None:
            self.run.progress(step=self.step)

    def note(self, notes: Sequence[str], level: Literal["info", "warning"] = "warning") -> None:
        """Tells the job what is to be said once about its data: not again when it resumes."""
        if self.run is not None and self.step == 0:
            for note in notes:
                self.run.message(note, level)

    def _tell(self, text: str) -> None:
        if self.alive is not None:
            self.alive()
        if self.run is not None:
            if not self._told:
                self.run.message(text)
                self._told = True
            self.run.progress(step=self.step)
        if self.world is not None and self.world.size > 1:
            self.world.from_rank_0(b"")


ALONE = Scan()
"""This process looks through a source by itself, and says nothing."""


def _encoded(read: Callable[[], dict[str, Any]]) -> bytes:
    try:
        answer = {"found": read()}
    except DataError as error:
        answer = {"error": error.message}
    return zlib.compress(json.dumps(answer).encode(), 1)
