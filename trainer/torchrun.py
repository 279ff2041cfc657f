"""torchrun for one host: `python -P -m trainer.torchrun` takes torchrun's own arguments.

Its rendezvous stores listen on loopback only. PyTorch would bind them to every address of the host, and it unpickles
what they hold: whoever reaches the port could run code here.
"""

import socket
from typing import Any

from torchyard.contract.collector import paused

with paused():
    from torch import distributed
    from torch.distributed import TCPStore, run  # pyright: ignore[reportPrivateImportUsage]
    from torch.distributed.elastic.rendezvous import c10d_rendezvous_backend

LOOPBACK = "127.0.0.1"


class LoopbackStore(TCPStore):
    """A TCPStore whose server, if it has one, listens on loopback only."""

    def __init__(
        self, host_name: str, port: int, world_size: int | None = None, is_master: bool = False, **options: Any
    ) -> None:
        if is_master:
            listener = socket.create_server((LOOPBACK, port))
            port = listener.getsockname()[1]
            options["master_listen_fd"] = listener.detach()
        super().__init__(LOOPBACK, port, world_size, is_master, **options)


def main() -> None:
    """Runs torchrun with `sys.argv`."""
    for module in (distributed, c10d_rendezvous_backend):  # the store of the ranks, the rendezvous
        vars(module)["TCPStore"] = LoopbackStore
    run.main()


if __name__ == "__main__":
    main()
