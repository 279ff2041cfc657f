"""A checkpoint that all ranks write together: each its own part of the state, and rank 0 the index and the manifest.

    checkpoints/.NAME.TOKEN/          what becomes the checkpoint; rank 0 gives it its name
    checkpoints/.NAME.TOKEN.written/  N.json of each rank whose part is whole

The ranks' threads meet in these files, as no collective may run beside the training's own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
import errno
from pathlib import Path
import secrets
import shutil
import threading
import time
from typing import Annotated, Any, NamedTuple

from torchyard.contract.attempts.records import ManifestFile
from torchyard.contract.attempts.rundir import INDEX_FILE
from torchyard.contract.wire.codec import Record, at_most
from torchyard.host.recordfiles import read_record, write_record
from torchyard.run.checkpoint_writer import PendingCheckpoint
from torchyard.run.eventlog import EventLog
from torchyard.run.publishing import Content, give_name, write_file
from torchyard.run.saved import Saved
from torchyard.run.tensors import on_host

SILENCE_S = 600.0
"""How long rank 0 waits for a part that does not grow."""
_POLL_S = 0.05


@dataclass(frozen=True)
class Ranks:
    """This rank's place among those that save together."""

    rank: int
    size: int
    meet: Callable[[str], list[str]]
    """Returns the texts of all ranks, in their order. A collective."""


class Part(NamedTuple):
    """What `Joint` needs of one rank's state, in host memory."""

    state: dict[str, Any]
    described: Any


@dataclass(frozen=True, kw_only=True)
class Written(Record):
    """The part of one rank, which is whole."""

    file: ManifestFile
    rows: dict[str, Any]
    """The first row and the row after the last of each of its shards, by the tensor's name."""
    unfit: Annotated[str, at_most(10_000)] = ""
    """Why the checkpoint must not be published."""


@dataclass(frozen=True)
class Joint(Saved):
    """A checkpoint of which this process writes one part. `state` has `Shard`s for the tensors that it shares."""

    ranks: Ranks
    token: str
    """The same on all ranks, and on no other save."""
    given_up: threading.Event = field(default_factory=threading.Event)
    """Set once a part that is missing never comes: its rank saves anew."""

    @classmethod
    def agreed(cls, saved: Saved, ranks: Ranks, *, lacks: bool = False) -> tuple["Joint", bool]:
        """Returns the save that all ranks begin now, and whether a rank lacks its part of the last one. A collective.

        `lacks`: whether this one does.
        """
        token, *others = ranks.meet(secrets.token_hex(8) if ranks.rank == 0 else "lacks" * lacks)
        fields = {name: getattr(saved, name) for name in saved.__dataclass_fields__}
        return cls(**fields, ranks=ranks, token=token), any(others)

    def pending(self, folder: Path, events: EventLog | None, *, clone: bool) -> PendingCheckpoint:
        """Returns this rank's part of the tensors as they are now. Rank 0 publishes the checkpoint, with its event."""
        from torchyard.states.stateindex import describe

        state, wait = on_host(self.state, clone=clone)
        part = Part(state, describe(state))

        def write() -> None:
            wait()
            places = _Places(folder, self.name, self.token)
            places.make()
            own = self._write_part(places, part)
            if events is not None:
                self._publish(places, part, own, events)

        return PendingCheckpoint(self.manifest.step, write)

    def discard(self, folder: Path) -> None:
        """Removes what the ranks have written, if it was not published. No rank may write any more."""
        _Places(folder, self.name, self.token).remove()

    def _write_part(self, places: "_Places", part: Part) -> Written:
        from torchyard.states.stateindex import Shard
        from torchyard.states.tensorfile import write_tensors

        rank, tensors = self.ranks.rank, part.described.tensors
        shards = {name: item for name, item in tensors.items() if isinstance(item, Shard)}
        mine = {name: item.local for name, item in shards.items() if len(item.local)}
        if rank == 0:
            mine |= {name: item for name, item in tensors.items() if name not in shards}
        written = Written(
            file=_rewrite(places.part(rank, self.ranks.size), lambda file: write_tensors(mine, file)),
            rows={name: [item.first, item.first + len(item.local)] for name, item in shards.items() if len(item.local)},
            unfit=(self.unfit(_own_values(part.state)) if self.unfit else None) or "",
        )
        write_record(places.record(rank), written)
        return written

    def _publish(self, places: "_Places", part: Part, own: Written, events: EventLog) -> None:
        """Publishes the checkpoint once all parts are written, unless one of them is unfit."""
        from torchyard.states.stateindex import index_of

        parts = [own, *(self._awaited(places, rank) for rank in range(1, self.ranks.size))]
        reason = next((written.unfit for written in parts if written.unfit), None)
        if reason is not None:
            self.refuse(reason)
        if reason is not None:
            return places.remove()
        listed = [written.file for written in parts]
        index = index_of(part.described, files=listed, rows=[written.rows for written in parts])
        contents: dict[str, Content] = {INDEX_FILE: index, **self.files}
        written = [_rewrite(places.folder / name, content, below=places.folder) for name, content in contents.items()]
        events.flush()  # what was logged before must be on the disk when somebody resumes from it
        name = events.free_name(places.root, self.name)
        give_name(places.folder, places.root / name, replace(self.manifest, files=[*written, *listed]))
        events.checkpoint(name)
        return places.remove()

    def _awaited(self, places: "_Places", rank: int) -> Written:
        """Returns what a rank has written. Raises OSError if that never comes."""
        path, file = places.record(rank), places.part(rank, self.ranks.size)
        size, since = -1, time.monotonic()
        while (written := read_record(path, Written)) is None:
            if self.given_up.wait(_POLL_S):
                raise OSError(errno.ENOSPC, f"rank {rank} could not write its part", str(file))
            grown = file.stat().st_size if file.exists() else -1
            if grown != size:
                size, since = grown, time.monotonic()
            elif time.monotonic() - since > SILENCE_S:
                raise OSError(errno.ETIMEDOUT, f"rank {rank} has written nothing for {SILENCE_S:g} s", str(file))
        return written


@dataclass(frozen=True)
class _Places:
    """The paths of one save."""

    root: Path
    name: str
    token: str

    @property
    def folder(self) -> Path:
        return self.root / f".{self.name}.{self.token}"

    @property
    def written(self) -> Path:
        return self.root / f".{self.name}.{self.token}.written"

    def part(self, rank: int, size: int) -> Path:
        return self.folder / f"state-{rank + 1:05d}-of-{size:05d}.safetensors"

    def record(self, rank: int) -> Path:
        return self.written / f"{rank}.json"

    def make(self) -> None:
        for folder in (self.folder, self.written):
            folder.mkdir(parents=True, exist_ok=True)

    def remove(self) -> None:
        for folder in (self.folder, self.written):
            shutil.rmtree(folder, ignore_errors=True)


def _rewrite(path: Path, content: Content, *, below: Path | None = None) -> ManifestFile:
    """Writes a file, which an earlier try may have left. Leaves nothing of it if it fails."""
    folder = below or path.parent
    path.unlink(missing_ok=True)
    try:
        return write_file(folder, str(path.relative_to(folder)), content)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _own_values(tree: Any) -> Any:
    """Returns a state with this rank's rows in place of each shard."""
    from torchyard.states.stateindex import Shard

    if isinstance(tree, Shard):
        return tree.local
    if isinstance(tree, Mapping):
        return {key: _own_values(value) for key, value in tree.items()}
    return [_own_values(value) for value in tree] if isinstance(tree, (list, tuple)) else tree
