"""Carries the bytes of an `ssh` to the server in a job, whose key it learns first."""

import asyncio
from contextlib import suppress
import signal

from torchyard.cli.reach.blocking import Worker, read_some, stop, write_all
from torchyard.cli.reach.reaching import explained, open_reach
from torchyard.cli.reach.sshkeys import Keys
from torchyard.client import Client
from torchyard.contract.errors import ServerError, TorchyardError
from torchyard.contract.reach.orders import Order
from torchyard.host import terminal
from torchyard.host.channel import Channel, Closed

_PATIENCE_S = 60.0
_LONGEST_LINE = 1000


async def proxy(client: Client, job_id: str, keys: Keys) -> int:
    """Runs until ssh, or the server, goes. Returns the exit code for this process. Raises TorchyardError."""
    order = Order(kind="ssh", authorized_key=keys.own_key())
    reach = await open_reach(client, job_id, order, patience=_PATIENCE_S, tell=_say_nothing)
    main, messages = reach.channel(0), reach.channel(1)
    running = asyncio.create_task(reach.run())
    tasks = [asyncio.create_task(each) for each in (_send(main), _receive(main, messages, keys))]
    left = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, left.set)  # so ssh ends it
    leaving = asyncio.create_task(left.wait())
    try:
        await asyncio.wait({running, leaving, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
        if running.done():
            await tasks[1]
            return 1 if running.result() else 0
        reach.close(main)
        await asyncio.wait({running}, timeout=1)
    except TorchyardError as error:
        raise await explained(client, reach, error) from None
    finally:
        stop(running, leaving, *tasks)
    return 0


async def _send(main: Channel) -> None:
    """Passes on what ssh sends."""
    worker = Worker()
    with suppress(Closed):
        while content := await worker(read_some):
            await main.write(content)


async def _receive(main: Channel, messages: Channel, keys: Keys) -> None:
    """Passes on what the server sends, once its key is known to ssh."""
    worker, line = Worker(), b""
    with suppress(Closed, OSError):
        while b"\n" not in line and len(line) < _LONGEST_LINE and (content := await messages.read()):
            line += content
        first, _, rest = line.decode(errors="replace").partition("\n")
        if not keys.know(" ".join(first.split()[:2])):
            raise ServerError(f"the job has no SSH server: {terminal.plain(first + rest)[:_LONGEST_LINE]}")
        watching = asyncio.create_task(_tell_all(messages))
        while content := await main.read():
            await worker(lambda content=content: write_all(1, content))
        watching.cancel()


async def _tell_all(messages: Channel) -> None:
    with suppress(Closed):
        while content := await messages.read():
            terminal.note(content.decode(errors="replace").rstrip())


def _say_nothing(_: str) -> None:
    """ssh has the terminal."""
