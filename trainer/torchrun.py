"""torchrun for one host: `python -P -m trainer.torchrun` takes torchrun's arguments, but for those of the rendezvous.

Its store listens on loopback only: PyTorch would bind it to every address of the host. Every process of the host
reaches it there all the same, so the rendezvous is torchrun's static one. The other one unpickles what the store holds:
whoever reaches the port could run code here.
"""

import socket
import sys
from typing import Any

from torchyard.host.collector import paused

with paused():
    from torch.distributed import TCPStore, run  # pyright: ignore[reportPrivateImportUsage]
    from torch.distributed.elastic.rendezvous import static_tcp_rendezvous

LOOPBACK = "127.0.0.1"


def main() -> None:
    """Runs torchrun with `sys.argv`, and a store at a port of its own."""
    listener = socket.create_server((LOOPBACK, 0))  # from here on nobody else can have the port
    port = listener.getsockname()[1]

    def loopback_store(host_name: str, port: int, *options: Any, **named: Any) -> TCPStore:
        return TCPStore(host_name, port, *options, **named, master_listen_fd=listener.detach())

    setattr(static_tcp_rendezvous, "TCPStore", loopback_store)  # noqa: B010 it takes the place of a class
    run.main(["--rdzv-backend=static", f"--rdzv-endpoint={LOOPBACK}:{port}", *sys.argv[1:]])


if __name__ == "__main__":
    main()
