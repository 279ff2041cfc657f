"""Where the ranks of an attempt write that they know of a stop, and read which call is the last one."""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
import os
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from torchyard.contract.wire.codec import Record
from torchyard.host.disk import FULL
from torchyard.host.recordfiles import write_record
from torchyard.host.untrusted import read_untrusted

if TYPE_CHECKING:
    from torch.distributed import Store  # pyright: ignore[reportPrivateImportUsage]

_CONNECT_S = 20.0
"""How long the store may take to answer a new connection."""
_PREFIX = "torchyard/stop"
_LAST = "last"
_DIGITS = 18
"""The most digits of a call. Whoever reaches the store can write anything there."""


class BoardLost(Exception):
    """The board is gone, and with it the rank or the host that has it."""


class Board(Protocol):
    """No method waits for another rank."""

    def acknowledge(self, rank: int) -> bool:
        """Writes that the rank knows of the request. Returns False if that has to be tried again."""
        ...

    def all_acknowledged(self) -> bool: ...

    def name_last_call(self, call: int) -> None:
        """Writes the last call. When this returns, every rank finds it."""
        ...

    def last_call(self) -> int | None: ...


@dataclass(frozen=True, kw_only=True)
class _LastCall(Record):
    call: int


class FileBoard:
    """Files of one host. A full disk is no error: the next call tries again. The methods raise OSError."""

    def __init__(self, folder: Path, *, world_size: int) -> None:
        self._folder = folder
        self._world_size = world_size

    def acknowledge(self, rank: int) -> bool:
        with _ignore_full_disk():
            self._folder.mkdir(exist_ok=True)
            _create(self._folder / f"ack-{rank}")
            return True
        return False

    def all_acknowledged(self) -> bool:
        return all(os.path.lexists(self._folder / f"ack-{rank}") for rank in range(self._world_size))

    def name_last_call(self, call: int) -> None:
        with _ignore_full_disk():
            write_record(self._folder / "at", _LastCall(call=call))

    def last_call(self) -> int | None:
        last = read_untrusted(self._folder / "at", _LastCall)
        return last.call if last is not None else None


class StoreBoard:
    """Keys of a store that all hosts reach. The methods raise BoardLost."""

    def __init__(self, store: "Store", *, world_size: int) -> None:
        self._store = store
        self._world_size = world_size

    def acknowledge(self, rank: int) -> bool:
        with _losing():
            self._store.set(_key(rank), "1")
        return True

    def all_acknowledged(self) -> bool:
        with _losing():
            return self._store.check([_key(rank) for rank in range(self._world_size)])

    def name_last_call(self, call: int) -> None:
        with _losing():
            self._store.compare_set(_LAST, "", str(call))  # unlike `set`, it waits for the answer

    def last_call(self) -> int | None:
        with _losing():
            found = self._store.get(_LAST) if self._store.check([_LAST]) else b""
        return int(found) if found.isdigit() and len(found) <= _DIGITS else None


def store_board(*, world_size: int) -> StoreBoard | None:
    """Connects to the store where the ranks have met. Returns None without one. Raises BoardLost if it is gone."""
    address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT", "")
    if not address or not port.isdecimal():
        return None
    try:
        from torch.distributed import PrefixStore, TCPStore, is_initialized  # pyright: ignore[reportPrivateImportUsage]
    except ImportError:
        return None
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True" and not is_initialized():
        return None
    with _losing():
        # A connection of its own: that of the process group may be waiting for another rank.
        store = TCPStore(address, int(port), timeout=timedelta(seconds=_CONNECT_S), wait_for_workers=False)
        return StoreBoard(PrefixStore(_PREFIX, store), world_size=world_size)


def _key(rank: int) -> str:
    return f"ack-{rank}"


def _create(path: Path) -> None:
    """Creates an empty file, unless something has its name. Raises OSError."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


@contextmanager
def _ignore_full_disk() -> Generator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise


@contextmanager
def _losing() -> Generator[None]:
    """Raises BoardLost for every error of torch's store."""
    try:
        yield
    except RuntimeError as error:
        raise BoardLost from error
