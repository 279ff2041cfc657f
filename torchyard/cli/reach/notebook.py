"""Jupyter in a running job, at this machine's loopback: the job's own, from its packages."""

import asyncio
import re
import signal

from torchyard.cli.reach.blocking import stop
from torchyard.cli.reach.forwarding import Forwarder, Wanted, listening, loopback_of, until_listening
from torchyard.cli.reach.reaching import end, explained, open_reach
from torchyard.client import Client
from torchyard.client.reaching.reach import Reach
from torchyard.contract.errors import Conflict, TorchyardError
from torchyard.contract.jobs.views import JobView
from torchyard.contract.reach.orders import Order, Target
from torchyard.host import terminal
from torchyard.host.channel import Channel, Closed

_ARGV = ["python", "-m", "jupyter", "lab", "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1"]
_ADDRESS = re.compile(r"http://(?:localhost|127\.0\.0\.1):(\d{1,5})(/\S*\?token=[0-9A-Za-z]+)")
_PATIENCE_S = 60.0
_LONGEST = 1 << 16
"""Characters of what Jupyter writes until its address is there."""


def open_notebook(client: Client, job: JobView) -> int:
    """Runs Jupyter in the job until Ctrl-C, and prints its address with its token. Returns the exit code.

    Raises Conflict if the job's packages have no Jupyter.
    """
    return asyncio.run(_open(client, job))


async def _open(client: Client, job: JobView) -> int:
    order = Order(kind="program", argv=_ARGV)
    reach = await open_reach(client, job.id, order, patience=_PATIENCE_S, tell=terminal.note)
    main, messages = reach.channel(0), reach.channel(1)
    left = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, left.set)
    tasks = [asyncio.create_task(each) for each in (_drop(main), _serve(client, job, messages), left.wait())]
    running = asyncio.create_task(reach.run())
    try:
        await asyncio.wait({running, *tasks[1:]}, return_when=asyncio.FIRST_COMPLETED)
        if tasks[1].done():
            tasks[1].result()
        if running.done():
            return running.result()
        await _end(client, reach, main, running)
        return 0
    except TorchyardError as error:
        raise await explained(client, reach, error) from None
    finally:
        stop(running, *tasks)


async def _serve(client: Client, job: JobView, messages: Channel) -> None:
    """Forwards Jupyter once it has said where it is. Raises Conflict if it has not."""
    port, path = await _address(messages)
    host = loopback_of(client.server.url)
    wanted = Wanted(Target(port=port), None)
    dropping = asyncio.create_task(_drop(messages))
    try:
        # It says where it is before it listens: on its own host, this process would take the port from it.
        await until_listening(client, job.id, wanted.target)
        with listening(wanted, host) as sockets:
            terminal.write_piece(f"http://{host}:{sockets[0].getsockname()[1]}{path}\n")
            await Forwarder(client, job.id).run([(wanted, sockets)])
    finally:
        dropping.cancel()


async def _address(messages: Channel) -> tuple[int, str]:
    said = ""
    while len(said) < _LONGEST and (content := await _read(messages)):
        said += content.decode(errors="replace")
        if (found := _ADDRESS.search(said)) is not None and said[found.end() :]:
            return int(found[1]), found[2]
    if "No module named" in said:
        raise Conflict("Jupyter is not installed in the job: add jupyterlab to the file of --requirements")
    raise Conflict(f"Jupyter does not start: {terminal.plain(said[-500:])}")


async def _read(channel: Channel) -> bytes:
    try:
        return await channel.read()
    except Closed:
        return b""


async def _drop(channel: Channel) -> None:
    while await _read(channel):
        pass


async def _end(client: Client, reach: Reach, main: Channel, running: asyncio.Task[int]) -> None:
    if reach.is_connected:
        reach.close(main)
        await asyncio.wait({running}, timeout=3)
    else:
        await end(client, reach.id)
