"""`python -P -m api`: the REST service, set by `TORCHYARD_*` variables. SIGTERM and SIGINT end it, with exit code 0."""

import logging
import resource
import signal
import sys

from torchyard.contract.collector import paused
from torchyard.contract.errors import TorchyardError

with paused():
    from api.app import create_app
    from api.server import Server
    from api.settings import Settings

_OWN_DESCRIPTORS = 256
"""Besides those of connections, each of which may have a file open."""


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        settings = Settings.load()
        app = create_app(settings)
    except TorchyardError as error:
        logging.error("%s", error)
        return 1
    server = Server(app, settings, closing=(app.state.services.live.close,))

    def stop(*_: object) -> None:
        server.should_exit = True

    # uvicorn raises the signal that stopped it once more when it is done: it must find a handler that does not kill.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    _allow_descriptors(2 * settings.max_connections + _OWN_DESCRIPTORS)
    server.run()
    return 0 if server.started else 1


def _allow_descriptors(count: int) -> None:
    """Raises this process's limit on open files to `count`, as far as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


if __name__ == "__main__":
    sys.exit(main())
