"""Forwards ports of this machine's loopback to what a running job listens on."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
import os
import socket
from urllib.parse import urlsplit

from torchyard.cli.reach.blocking import stop
from torchyard.cli.reach.reaching import end, explained, open_reach
from torchyard.client import Client
from torchyard.client.reaching.reach import Reach
from torchyard.contract.errors import ConfigError, TorchyardError
from torchyard.contract.reach.orders import Order, Target
from torchyard.host import terminal
from torchyard.host.channel import Channel, Closed

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

_AT_ONCE = 1 << 16
_PATIENCE_S = 60.0
"""For how long the connections of a forward wait for its client in the job."""
_AGAIN_S = 0.1


@dataclass(frozen=True)
class Wanted:
    """What is to be reached, and by which port of this machine: None is any."""

    target: Target
    port: int | None

    @property
    def what(self) -> str:
        return f"port {self.target.port}" if self.target.port is not None else str(self.target.path)


def wanted_of(text: str) -> Wanted:
    """Parses `PORT`, `PORT:LOCAL`, `PATH` and `PATH:LOCAL`. Raises ValueError."""
    remote, colon, local = text.rpartition(":")
    if not colon:
        remote, local = text, ""
    port = _port(local) if colon else None
    if "/" in remote:
        return Wanted(Target(path=remote), port)
    return Wanted(Target(port=_port(remote)), port)


def loopback_of(url: str) -> str:
    """Returns the name of loopback that the service at the address does not use: cookies know no port."""
    return "127.0.0.1" if urlsplit(url).hostname == "localhost" else "localhost"


@contextmanager
def listening(wanted: Wanted, host: str) -> Generator[list[socket.socket]]:
    """Yields the sockets that listen for a forward, all at one port. Raises ConfigError."""
    with ExitStack() as stack:
        try:
            first = _listen(wanted.target.port or 0) if wanted.port is None else _listen(wanted.port)
        except OSError as error:
            if wanted.port is not None:
                raise ConfigError(
                    f"port {wanted.port} of this machine cannot be used: {os.strerror(error.errno or 0)}"
                ) from None
            first = _listen(0)
        found = [stack.enter_context(first)]
        if host == "localhost":  # a browser tries its address of IPv6 first
            with suppress(OSError):
                found.append(stack.enter_context(_listen(first.getsockname()[1], family=socket.AF_INET6)))
        yield found


async def until_listening(client: Client, job_id: str, target: Target) -> None:
    """Waits until a process of the job listens there. Raises TorchyardError when the job can be reached no more."""
    reach = await _open(client, job_id)
    running = asyncio.create_task(reach.run())
    try:
        while not running.done():
            try:
                reach.close(await reach.open(target))
            except Closed:
                await asyncio.sleep(_AGAIN_S)
            else:
                return await end(client, reach.id)
        running.result()
    except TorchyardError as error:
        raise await explained(client, reach, error) from None
    finally:
        stop(running)


class Forwarder:
    """Carries connections into a job, over one reach after the other for as long as its attempt runs."""

    def __init__(self, client: Client, job_id: str) -> None:
        self._client = client
        self._job_id = job_id
        self._reach: Reach | None = None
        self._told = set[str]()

    async def run(self, listeners: Sequence[tuple[Wanted, Sequence[socket.socket]]]) -> None:
        """Runs until it is cancelled. Raises TorchyardError when the job can be reached no more."""
        self._reach = await _open(self._client, self._job_id)
        servers = [
            await asyncio.start_server(self._serve(wanted), sock=listener)
            for wanted, listeners_of_one in listeners
            for listener in listeners_of_one
        ]
        try:
            while True:
                await self._carry(self._reach)
                self._reach = await _open(self._client, self._job_id)
        finally:
            for server in servers:
                server.close()

    async def _carry(self, reach: Reach) -> None:
        """Returns when the job's side has given the reach up, as nobody came for too long. Raises TorchyardError."""
        try:
            await reach.run()
        except TorchyardError as error:
            reason = await explained(self._client, reach, error)
            if not reach.was_met or reason is not error or error.code not in {"not_found", "reach_ended"}:
                raise reason from None

    def _serve(self, wanted: Wanted) -> Serve:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            assert self._reach is not None
            reach = self._reach
            try:
                channel = await reach.open(wanted.target)
            except Closed as error:
                self._tell_once(f"{wanted.what}: {error}")
                writer.transport.abort()
                return
            try:
                await _exchange(channel, reader, writer)
            except (Closed, OSError):
                reach.close(channel)
                writer.transport.abort()

        return serve

    def _tell_once(self, line: str) -> None:
        """Tells what a browser makes happen many times."""
        if line not in self._told:
            self._told.add(line)
            terminal.note(line)


async def _open(client: Client, job_id: str) -> Reach:
    return await open_reach(client, job_id, Order(kind="ports"), patience=_PATIENCE_S, tell=terminal.note)


async def _exchange(channel: Channel, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Passes bytes on both ways, to the end of both. Raises Closed and OSError."""

    async def pass_up() -> None:
        while content := await reader.read(_AT_ONCE):
            await channel.write(content)
        channel.end()

    async def pass_down() -> None:
        while content := await channel.read():
            writer.write(content)
            await writer.drain()
        writer.write_eof()

    up, down = asyncio.create_task(pass_up()), asyncio.create_task(pass_down())
    try:
        await asyncio.gather(up, down)
    finally:
        up.cancel()
        down.cancel()
    writer.close()


def _listen(port: int, *, family: socket.AddressFamily = socket.AF_INET) -> socket.socket:
    """Raises OSError."""
    return socket.create_server(("127.0.0.1" if family == socket.AF_INET else "::1", port), family=family)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 1 << 16):
        raise ValueError(f"{text!r} is not a port: write one from 1 to 65535, or the path of a Unix socket with a /")
    return int(text)
