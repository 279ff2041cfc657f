"""torchrun with a store that only the ranks are to reach: `python -P -m trainer.torchrun` takes torchrun's arguments.

Its store listens at one address alone: PyTorch would bind it to every address of the host. Without `--rdzv-endpoint=`
as the first argument that is loopback, at a port of its own. With it, there are several nodes, and node 0 gets the
socket that listens there.

Every process that reaches the store can talk to it all the same, so the rendezvous is torchrun's static one. The other
one unpickles what the store holds: whoever reaches the port could run code here.

At SIGTERM, torchrun would end its ranks within 30 s. A cluster sends that to all processes of a job: here the
supervisor alone decides how long the ranks have.

An environment of a user runs this file by its path, with its own Python, from 3.10 on, and its own torch, from 2.1 on:
so it needs nothing but the standard library and torch.
"""

import gc
import os
import signal
import socket
import sys
from typing import Any

gc.disable()  # it would go through all objects again and again while modules are imported
from torch.distributed import TCPStore, run  # noqa: E402 # pyright: ignore[reportPrivateImportUsage]
from torch.distributed.elastic.multiprocessing import api as processes  # noqa: E402
from torch.distributed.elastic.rendezvous import static_tcp_rendezvous  # noqa: E402

gc.freeze()
gc.enable()

LOOPBACK = "127.0.0.1"
LISTENER = "TORCHYARD_LISTENER"
"""The variable with the descriptor of the socket where nodes meet: `torchyard.contract.attempts.rundir.Env` has it."""
_SIGNALS = "--signals-to-handle=SIGINT,SIGHUP,SIGQUIT"
"""Those of torchrun, without SIGTERM."""
_HANDLER = "_terminate_process_handler"
"""The name of torchrun's handler of these signals."""


def main() -> None:
    """Runs torchrun with `sys.argv`."""
    signal.signal(signal.SIGTERM, _do_nothing)  # the ranks would inherit SIG_IGN
    setattr(socket, "getfqdn", _own_name)  # noqa: B010 torchrun calls it for each event that it records
    arguments, descriptor = sys.argv[1:], os.environ.pop(LISTENER, None)
    if arguments[0].startswith("--rdzv-endpoint="):
        listener = None if descriptor is None else socket.socket(fileno=int(descriptor))
    else:
        listener = socket.create_server((LOOPBACK, 0))  # from here on nobody else can have the port
        arguments = [f"--rdzv-endpoint={LOOPBACK}:{listener.getsockname()[1]}", *arguments]
    if listener is not None:
        _listen_at(listener)
    run.main(["--rdzv-backend=static", *_signals(), *arguments])


def _signals() -> list[str]:
    """Returns the option that leaves SIGTERM to the supervisor. An older torch has none: its handler ignores it."""
    name = _SIGNALS.partition("=")[0]
    if any(name in action.option_strings for action in run.get_args_parser()._actions):
        return [_SIGNALS]
    handle = getattr(processes, _HANDLER, None)

    def handle_others(number: int, frame: Any) -> None:
        if handle is not None and number != signal.SIGTERM:
            handle(number, frame)

    setattr(processes, _HANDLER, handle_others)
    return []


def _listen_at(listener: socket.socket) -> None:
    """Makes torchrun's store listen at this socket."""

    def store(host_name: str, port: int, *options: Any, **named: Any) -> TCPStore:
        try:
            return TCPStore(host_name, port, *options, **named, master_listen_fd=listener.detach())
        except TypeError:
            sys.exit("the torch of this environment cannot hold its rendezvous to one address: it needs torch 2.1")

    setattr(static_tcp_rendezvous, "TCPStore", store)  # noqa: B010 it takes the place of a class


def _own_name(_: str = "") -> str:
    """Returns this host's name, as it is. A name server that does not know it can take many seconds to say so."""
    return socket.gethostname()


def _do_nothing(*_: object) -> None:
    pass


if __name__ == "__main__":
    main()
