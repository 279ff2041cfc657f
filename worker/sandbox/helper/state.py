"""What the helper remembers in files of root: the uid of each owner, and the attempts that run."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
import fcntl
import os
from pathlib import Path

from torchyard.contract.attempts.records import ProcessIdentity
from torchyard.contract.wire.codec import Record
from torchyard.host.recordfiles import read_record, write_record
from worker.host import process
from worker.sandbox.strict.protocol import Refusal


@dataclass(frozen=True, kw_only=True)
class _Uids(Record):
    by_owner: dict[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True)
class State:
    """The files are in `folder`, which belongs to root alone. `uids` are those that owners may get."""

    folder: Path
    uids: range

    def create(self) -> None:
        """Makes the folders. Raises OSError."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._attempts.mkdir(mode=0o700, exist_ok=True)

    def uid_of(self, owner: str) -> int:
        """Returns the owner's uid: always the same, and nobody else's. Raises Refusal if none is left, and OSError."""
        file = self.folder / "uids.json"
        with self._locked():
            known = (read_record(file, _Uids) or _Uids()).by_owner
            if owner not in known:
                free = next((uid for uid in self.uids if uid not in set(known.values())), None)
                if free is None:
                    raise Refusal(f"all {len(self.uids)} uids of the helper (--first-uid, --uids) are taken")
                known = known | {owner: free}
                write_record(file, _Uids(by_owner=known))
        return known[owner]

    @contextmanager
    def claimed(self, key: str) -> Generator[None]:
        """Reserves an attempt while the block runs. Raises Refusal if it runs already, and OSError."""
        me = process.identity(os.getpid())
        assert me is not None, "this process runs"
        keeper = self._attempts / f"{key}.keeper"
        with self._locked():
            other = read_record(keeper, ProcessIdentity)
            if other is not None and process.is_alive(other):
                raise Refusal("this attempt runs already")
            write_record(keeper, me)
        try:
            yield
        finally:
            self._init(key).unlink(missing_ok=True)
            keeper.unlink()

    def note_init(self, key: str, init: ProcessIdentity) -> None:
        """Notes the first process of a claimed attempt. Raises OSError."""
        write_record(self._init(key), init)

    def init_of(self, key: str) -> ProcessIdentity:
        """Returns what was noted. Raises Refusal if the attempt does not run."""
        init = read_record(self._init(key), ProcessIdentity)
        if init is None:
            raise Refusal("this attempt does not run")
        return init

    @property
    def _attempts(self) -> Path:
        return self.folder / "attempts"

    def _init(self, key: str) -> Path:
        return self._attempts / f"{key}.init"

    @contextmanager
    def _locked(self) -> Generator[None]:
        descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)
