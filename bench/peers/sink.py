"""A minimal service for uploads: uvicorn, and an application that writes the body of a request to a file.

`python -m bench.peers.sink FILE` prints its port and serves on loopback until it is stopped.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
import socket
import subprocess
import sys
from typing import Any

import uvicorn


@dataclass(frozen=True)
class Peer:
    url: str


@contextmanager
def running(file: Path) -> Generator[Peer]:
    """Runs the service as long as the context lasts."""
    with subprocess.Popen([sys.executable, "-m", "bench.peers.sink", str(file)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            yield Peer(f"http://127.0.0.1:{port}/")  # it listens already: who connects waits until it serves
        finally:
            process.terminate()


def _application(path: Path) -> Any:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        with path.open("wb") as file:
            more = True
            while more:
                message = await receive()
                file.write(message.get("body", b""))
                more = message.get("more_body", False)
        await send({"type": "http.response.start", "status": 201, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    return application


def _main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        config = uvicorn.Config(_application(Path(sys.argv[1])), access_log=False, log_level="warning", lifespan="off")
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    _main()
