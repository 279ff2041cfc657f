"""Brings the two ends of a meeting together: in this process, or by a Unix socket of the one where the first waits."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
import socket

from api.reaches.ends import End, StreamEnd
from torchyard.host.identity import boot_id
from torchyard.host.unix_sockets import address_of

_TOKEN_BYTES = 16
_READ_S = 5.0
_SUFFIX = ".sock"


class Elsewhere(Exception):
    """The process where the other end waits cannot be reached from this one."""


@dataclass(eq=False)
class Visitor:
    """The end that has come second, for whoever waits with the first."""

    end: End
    is_done: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once nothing more is passed on."""


@dataclass(frozen=True)
class Expected:
    """A first end that waits."""

    place: str
    """By which any process of the API on this host finds it."""
    visitor: asyncio.Future[Visitor]


class Meetings:
    """The first ends that wait in this process. Call everything in the event loop."""

    def __init__(self, folder: Path) -> None:
        """`folder`: of the sockets of all processes of the API on this host. It is made when an end waits."""
        self._folder = folder
        self._name = token_hex(_TOKEN_BYTES)
        self._waiting: dict[str, asyncio.Future[Visitor]] = {}
        self._server: asyncio.Server | None = None
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        """Lets other processes bring ends to this one. Raises OSError."""
        async with self._opening:
            if self._server is None:
                self._server = await self._listen()

    @contextmanager
    def expect(self) -> Generator[Expected]:
        """Yields a place at which an end may wait, for the duration of the block."""
        token = token_hex(_TOKEN_BYTES)
        self._waiting[token] = asyncio.get_running_loop().create_future()
        try:
            yield Expected(f"{boot_id()}/{self._name}/{token}", self._waiting[token])
        finally:
            self._waiting.pop(token, None)

    async def visit(self, place: str, end: End) -> Visitor | StreamEnd:
        """Brings the second end to the first: as a visitor of this process, or by a stream that leads to the other one.

        Raises Elsewhere.
        """
        host, _, rest = place.partition("/")
        name, _, token = rest.partition("/")
        if name == self._name:
            visitor = Visitor(end)
            if not self._give(token, visitor):
                raise Elsewhere
            return visitor
        if host != boot_id() or not name.isalnum():
            raise Elsewhere
        try:
            return await self._connect(name, token)
        except (OSError, asyncio.IncompleteReadError) as error:
            raise Elsewhere from error

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            with suppress(OSError):
                self._path(self._name).unlink(missing_ok=True)

    def _give(self, token: str, visitor: Visitor) -> bool:
        waiting = self._waiting.pop(token, None)
        if waiting is None or waiting.done():
            return False
        waiting.set_result(visitor)
        return True

    async def _listen(self) -> asyncio.Server:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        await asyncio.to_thread(_remove_dead, self._folder)
        with address_of(self._path(self._name)) as address:
            return await asyncio.start_unix_server(self._admit, address)

    async def _connect(self, name: str, token: str) -> StreamEnd:
        with address_of(self._path(name)) as address:
            reader, writer = await asyncio.open_unix_connection(address)
        try:
            writer.write(f"{token}\n".encode())
            async with asyncio.timeout(_READ_S):
                await reader.readexactly(1)
        except BaseException:
            writer.close()
            raise
        return StreamEnd(reader, writer)

    async def _admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Takes a second end from another process. Nobody but this user can open the folder."""
        try:
            async with asyncio.timeout(_READ_S):
                token = (await reader.readexactly(2 * _TOKEN_BYTES + 1)).decode("latin-1").strip()
            visitor = Visitor(StreamEnd(reader, writer))
            if self._give(token, visitor):
                writer.write(b"\n")
                await visitor.is_done.wait()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the other process tells its end
        finally:
            writer.close()

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}{_SUFFIX}"


def _remove_dead(folder: Path) -> None:
    """Removes the sockets that processes have left which were killed."""
    for path in folder.glob(f"*{_SUFFIX}"):
        with address_of(path) as address, socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(_READ_S)
            try:
                probe.connect(address)
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
            except OSError:
                pass  # it has gone, or is busy
