"""`python -P -m api` runs the REST service, which `TORCHYARD_*` variables configure.

SIGTERM and SIGINT stop it with exit code 0. With `TORCHYARD_API_PROCESSES`, it starts others that serve.
"""

from collections.abc import Sequence
import logging
import resource
import signal
import socket
import sys
import threading
import time

from torchyard.contract.errors import TorchyardError, Unavailable
from torchyard.host import inspection
from torchyard.host.collector import look_rarely, paused
from torchyard.host.datadir import enter_empty_folder, make_files_private

with paused():
    from fastapi import FastAPI

    from api.app import create_app, token_of
    from api.processes import figures
    from api.processes.parent import Parent, listen
    from api.server import loopback
    from api.server.server import Server
    from api.settings import Settings
    from store.store import Store

_SWITCH_S = 0.0005
"""Switch interval of the interpreter. Each answer waits several times for threads that compute."""
_OWN_DESCRIPTORS = 256
"""File descriptors besides those of connections: a busy one has its socket and a file, an idle one its socket."""
_RETRY_S = 0.5
"""Seconds between two questions to a database that does not answer when the service starts."""


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    make_files_private()
    inspection.forbid()
    sys.setswitchinterval(_SWITCH_S)
    look_rarely()
    try:
        settings = Settings.load()
        _prepare_tls(settings)
        if settings.api_processes > 1:
            return _serve_together(settings)
        app = _make_app(settings)
    except (TorchyardError, OSError) as error:
        logging.error("%s", error)
        return 1
    return _serve(app, settings)


def _prepare_tls(settings: Settings) -> None:
    """Makes the self-signed certificate if the settings ask for one and none exists. Raises ConfigError and OSError."""
    files = settings.tls_files
    if files is None:
        return
    if settings.tls_certificate is None:
        from api.server import certificate  # most services need none

        certificate.ensure(files)
    files.check()


def _serve_together(settings: Settings) -> int:
    """Runs several processes that serve one address. Raises ConfigError and OSError."""
    token_of(settings)
    sockets = listen(settings.host, settings.port)

    held = loopback.hold(sockets)

    def serve(sockets: Sequence[socket.socket]) -> int:
        try:
            app = _make_app(settings)
        except (TorchyardError, OSError) as error:
            logging.error("%s", error)
            return 1
        app.state.services.origins.has_loopback = held is not None
        return _serve(app, settings, sockets=sockets)

    with figures.shared():
        return Parent(settings.api_processes, serve, sockets).run()


def _make_app(settings: Settings) -> FastAPI:
    """Returns the application, and enters an empty folder. Raises ConfigError and OSError."""
    with paused():
        app = create_app(settings)
    settings.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    enter_empty_folder(settings.root)
    return app


def _serve(app: FastAPI, settings: Settings, *, sockets: Sequence[socket.socket] | None = None) -> int:
    """Serves until SIGINT or SIGTERM, on an address of its own without `sockets`. Returns the exit code."""
    server = Server(app, settings, app.state.services.origins, closing=(app.state.services.end_streams,))

    def stop(*_: object) -> None:
        server.should_exit = True

    # uvicorn raises the signal again when it has stopped, so this handler must stay and must not kill.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    check = _ServiceCheck(app.state.services.store, server)
    threading.Thread(target=check.run, name="service check", daemon=True).start()
    _allow_descriptors(3 * settings.max_connections + _OWN_DESCRIPTORS)
    server.run(None if sockets is None else list(sockets))
    return 0 if server.started and not check.refused else 1


class _ServiceCheck:
    """Stops the server if its blobs are not those of the database's service, as soon as the database answers."""

    def __init__(self, store: Store, server: Server) -> None:
        self.refused = False
        self._store = store
        self._server = server

    def run(self) -> None:
        message = ""
        while not self._server.should_exit:
            try:
                self._store.service()
            except Unavailable as error:
                if error.message != message:
                    logging.warning("%s; trying again", error.message)
                message = error.message
                time.sleep(_RETRY_S)
            except TorchyardError as error:
                logging.error("%s", error)
                self.refused = self._server.should_exit = True
            else:
                return


def _allow_descriptors(count: int) -> None:
    """Raises this process's limit on open files to `count`, or to the hard limit if that is lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


if __name__ == "__main__":
    sys.exit(main())
