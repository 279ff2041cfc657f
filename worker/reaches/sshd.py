"""An SSH server for one client, in the sandbox of an attempt: its sessions are programs beside the rank's.

The handler of a reach starts it as `python -P -I -m worker.reaches.sshd KEY FIRST`, in a rank's folder and with its
variables: KEY is the only one that may log in, FIRST the pid above all of the attempt. The connection is its standard
input. It writes one line to stderr: the key by which the client knows it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
import fcntl
import os
from pathlib import Path
import signal
import socket
import struct
import sys
import tempfile
import termios

import asyncssh

from torchyard.contract.reach.orders import Target
from worker.sandbox.door.listeners import Neighbours, Refused
from worker.sandbox.door.program import ENDS, end_of_file, user_shell

_AT_ONCE = 1 << 16
_HOST_KEY = "torchyard-ssh-host-key"
"""In the folder of temporary files of the attempt, which ends with it."""
_LOOPBACK = {"localhost", "127.0.0.1", "::1", ""}
_END_AGAIN_S = 0.5
_HANG_UP_S = 2.0
_Session = asyncssh.SSHServerProcess[bytes]


class _Server(asyncssh.SSHServer):
    """Lets one key in, and connects it to what processes of the attempt listen on, and to nothing else."""

    def __init__(self, key: asyncssh.SSHKey, neighbours: Neighbours) -> None:
        self._key = key
        self._neighbours = neighbours

    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return key.public_data == self._key.public_data

    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> Callable[[asyncssh.SSHReader[bytes], asyncssh.SSHWriter[bytes]], Awaitable[None]]:
        if dest_host not in _LOOPBACK or not 0 < dest_port < 1 << 16:
            raise _prohibited(f"{dest_host} is not the loopback of this job")
        return self._connected(Target(port=dest_port))

    def unix_connection_requested(
        self, dest_path: str
    ) -> Callable[[asyncssh.SSHReader[bytes], asyncssh.SSHWriter[bytes]], Awaitable[None]]:
        return self._connected(Target(path=dest_path))

    def server_requested(self, listen_host: str, listen_port: int) -> bool:
        return False

    def unix_server_requested(self, listen_path: str) -> bool:
        return False

    def _connected(
        self, target: Target
    ) -> Callable[[asyncssh.SSHReader[bytes], asyncssh.SSHWriter[bytes]], Awaitable[None]]:
        try:
            connection = self._neighbours.connect(target)
        except Refused as error:
            raise _prohibited(str(error)) from None

        async def carry(reader: asyncssh.SSHReader[bytes], writer: asyncssh.SSHWriter[bytes]) -> None:
            theirs, ours = await asyncio.open_connection(sock=connection)
            with suppress(OSError, asyncssh.Error):
                await asyncio.gather(_pass(reader, ours), _pass(theirs, writer))
            ours.close()
            writer.close()

        return carry


class _Files(asyncssh.SFTPServer):
    """The files that the sandbox lets a program of the job open."""

    def exit(self) -> None:
        self.channel.exit(0)  # without it scp takes its own success for a failure


async def serve(connection: socket.socket, authorized_key: str, *, first: int) -> None:
    """Serves the client until it goes. Raises asyncssh.Error."""
    host_key, key = _host_key(), asyncssh.import_public_key(authorized_key)
    sys.stderr.buffer.write(host_key.export_public_key())
    sys.stderr.flush()
    server = await asyncssh.run_server(
        connection,
        server_factory=lambda: _Server(key, Neighbours(first)),
        server_host_keys=[host_key],
        process_factory=_run,
        sftp_factory=_Files,
        allow_scp=True,
        encoding=None,
        line_editor=False,
        agent_forwarding=False,
        x11_forwarding=False,
        password_auth=False,
        kbdint_auth=False,
        gss_host=None,
        login_timeout=60,
    )
    await server.wait_closed()


async def _run(session: _Session) -> None:
    """Runs what the client wants as a program, in a terminal if it asked for one."""
    argv = [user_shell()] + ([] if session.command is None else ["-c", session.command])
    env = {**os.environ, **{name: value for name, value in session.env.items() if name.startswith(("LANG", "LC_"))}}
    run = _run_with_pipes if session.term_type is None else _run_in_terminal
    try:
        await run(session, argv, env)
    except OSError as error:
        session.stderr.write(f"{argv[0]} cannot be started: {error.strerror}\n".encode())
        session.exit(127)


async def _run_with_pipes(session: _Session, argv: list[str], env: dict[str, str]) -> None:
    pipe = asyncio.subprocess.PIPE
    program = await asyncio.create_subprocess_exec(
        *argv, env=env, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
    )
    assert program.stdin is not None and program.stdout is not None and program.stderr is not None
    taking = asyncio.create_task(_take(session, program, program.stdin))
    await asyncio.gather(_pass_on(program.stdout, session.stdout), _pass_on(program.stderr, session.stderr))
    await _finish(session, program, taking)


async def _run_in_terminal(session: _Session, argv: list[str], env: dict[str, str]) -> None:
    ours, theirs = os.openpty()
    try:
        _resize(ours, session.term_size)
        program = await asyncio.create_subprocess_exec(
            *argv,
            env={**env, "TERM": str(session.term_type)},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
    finally:
        os.close(theirs)
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    reading, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.dup(ours), "rb", 0)
    )
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, os.fdopen(ours, "wb", 0))
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    taking = asyncio.create_task(_take(session, program, writer, terminal=ours))
    await _pass_on(reader, session.stdout)
    await _finish(session, program, taking)
    reading.close()
    transport.close()


async def _take(
    session: _Session, program: asyncio.subprocess.Process, to: asyncio.StreamWriter, *, terminal: int | None = None
) -> None:
    """Passes on what the client sends, and what it says of its terminal and of signals."""
    with suppress(OSError):
        while True:
            try:
                content = await session.stdin.read(_AT_ONCE)
            except asyncssh.TerminalSizeChanged as change:
                if terminal is not None:
                    _resize(terminal, change.term_size)
                continue
            except asyncssh.SignalReceived as received:
                number = getattr(signal, f"SIG{received.signal}", None)
                if isinstance(number, signal.Signals):
                    _signal(program, number)
                continue
            except asyncssh.BreakReceived:
                continue
            if not content:
                break
            to.write(content)
            await to.drain()
        if terminal is None:
            to.close()
        else:
            await _type_end(session, to, terminal)
    if session.channel.is_closing():
        _signal(program, signal.SIGHUP)


async def _type_end(session: _Session, to: asyncio.StreamWriter, terminal: int) -> None:
    """Types an end of file, again and again: a terminal forgets one that comes before its program changes the mode."""
    for _ in range(ENDS):
        if session.channel.is_closing():
            return
        to.write(end_of_file(terminal))
        await asyncio.sleep(_END_AGAIN_S)


async def _finish(session: _Session, program: asyncio.subprocess.Process, taking: asyncio.Task[None]) -> None:
    if session.channel.is_closing():
        _signal(program, signal.SIGHUP)
        with suppress(TimeoutError):
            await asyncio.wait_for(program.wait(), _HANG_UP_S)
        _signal(program, signal.SIGKILL)
    code = await program.wait()
    taking.cancel()
    if code >= 0:
        session.exit(code)
    else:
        session.exit_with_signal(signal.Signals(-code).name.removeprefix("SIG"))


async def _pass_on(reader: asyncio.StreamReader, writer: asyncssh.SSHWriter[bytes]) -> None:
    """Passes on what a program writes. Once nobody hears it, it is dropped."""
    try:
        while content := await reader.read(_AT_ONCE):
            with suppress(asyncssh.Error, OSError):
                writer.write(content)
                await writer.drain()
    except OSError:  # no process has the terminal open any more
        return


async def _pass(
    reader: asyncio.StreamReader | asyncssh.SSHReader[bytes], writer: asyncio.StreamWriter | asyncssh.SSHWriter[bytes]
) -> None:
    while content := await reader.read(_AT_ONCE):
        writer.write(content)
        await writer.drain()
    writer.write_eof()


def _signal(program: asyncio.subprocess.Process, number: signal.Signals) -> None:
    if program.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(program.pid, number)


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _resize(terminal: int, size: tuple[int, int, int, int]) -> None:
    """`size`: columns, rows, and both in pixels."""
    columns, rows = (min(max(side, 1), 10_000) for side in size[:2])
    with suppress(OSError):
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))


def _prohibited(why: str) -> asyncssh.ChannelOpenError:
    return asyncssh.ChannelOpenError(asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, why)


def _host_key() -> asyncssh.SSHKey:
    """Returns the key of the attempt. The first server makes it."""
    path = Path(tempfile.gettempdir(), _HOST_KEY)
    with suppress(OSError, asyncssh.KeyImportError):
        return asyncssh.read_private_key(path)
    made = asyncssh.generate_private_key("ssh-ed25519")
    descriptor, name = tempfile.mkstemp(prefix=_HOST_KEY)
    with os.fdopen(descriptor, "wb") as file:
        file.write(made.export_private_key())
    try:
        os.link(name, path)
    except FileExistsError:  # another one was first
        with suppress(OSError, asyncssh.KeyImportError):
            made = asyncssh.read_private_key(path)
    finally:
        Path(name).unlink()
    return made


if __name__ == "__main__":
    with suppress(asyncssh.Error, ConnectionError):
        asyncio.run(serve(socket.socket(fileno=0), sys.argv[1], first=int(sys.argv[2])))
