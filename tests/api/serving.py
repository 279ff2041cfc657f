"""Runs the API on a port of its own: as a program, a fork, or a thread of this process. Each starts faster."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
import os
from pathlib import Path
import socket
import subprocess
import sys
from threading import Thread
import time
from urllib.parse import urlsplit

from api import website
from api.app import create_app
from api.server import certificate
from api.server.server import Server
from api.settings import Settings
from tests import forks
from tests.api.raw import wait_until
from tests.api.service import TOKEN
from tests.forked import ForkedProgram
from tests.servers import free_port
from torchyard.cli.up import address

_START_S = 240

forks.preload("api.app", "api.server.server", "api.processes.parent")


@contextmanager
def api_process(
    folder: Path, database_url: str, redis_url: str, log_name: str = "api.log", /, **settings: object
) -> Generator[tuple[ForkedProgram, str]]:
    """The API's process, which is a fork, and its URL. Its log is in `folder`."""
    env, url = _address(folder, database_url, redis_url, settings)
    process = ForkedProgram("api", env=env, cwd=folder, log=folder / log_name)
    try:
        _wait_for(url, running=lambda: process.poll() is None)
        yield process, url
    finally:
        process.kill()


@contextmanager
def api_program(
    folder: Path, database_url: str, redis_url: str, **settings: object
) -> Generator[tuple[subprocess.Popen[bytes], str]]:
    """Does what `api_process` does with the program as users start it, which takes seconds of a processor."""
    env, url = _address(folder, database_url, redis_url, settings)
    with (folder / "api.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-P", "-m", "api"], env=env, cwd=folder, stdout=log, stderr=log)
    with process:
        try:
            _wait_for(url, running=lambda: process.poll() is None)
            yield process, url
        finally:
            process.kill()


def api_environment(
    folder: Path, database_url: str, redis_url: str, *, port: int, **settings: object
) -> dict[str, str]:
    """Returns the environment of the API's process."""
    return {
        **os.environ,
        "TORCHYARD_DATA_DIR": str(folder),
        "TORCHYARD_DATABASE_URL": database_url,
        "TORCHYARD_REDIS_URL": redis_url,
        "TORCHYARD_TOKEN": TOKEN,
        "TORCHYARD_PORT": str(port),
        **{f"TORCHYARD_{name.upper()}": str(value) for name, value in settings.items()},
    }


@contextmanager
def api_thread(
    folder: Path,
    database_url: str,
    redis_url: str,
    *,
    page_folder: Path = website.BUILT,
    port: int | None = None,
    **more: object,
) -> Generator[str]:
    """The URL of an API that a thread of this process serves over real connections. `more` are settings."""
    port = port or free_port()
    settings = Settings(
        data_dir=folder,
        database_url=database_url,
        redis_url=redis_url,
        token=TOKEN,  # pyright: ignore[reportArgumentType] - pydantic makes it a secret
        port=port,
        **more,  # pyright: ignore[reportArgumentType] - pydantic checks them
    )
    if (files := settings.tls_files) is not None:
        certificate.ensure(files)
    app = create_app(settings, page_folder=page_folder)
    server = Server(app, settings, app.state.services.origins, closing=(app.state.services.end_streams,))
    thread = Thread(target=server.run)
    thread.start()
    try:
        if files is None:
            _wait_for(url := f"http://127.0.0.1:{port}", running=thread.is_alive)
        else:
            url = f"https://127.0.0.1:{port}"
            wait_until(lambda: address.ready(url, files.text()))
        yield url
    finally:
        server.should_exit = True
        thread.join()


def _address(
    folder: Path, database_url: str, redis_url: str, settings: Mapping[str, object]
) -> tuple[dict[str, str], str]:
    port = free_port()
    return api_environment(folder, database_url, redis_url, port=port, **settings), f"http://127.0.0.1:{port}"


def _wait_for(url: str, *, running: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _START_S
    while not _answers(url):
        assert running(), f"the API at {url} ended"
        assert time.monotonic() < deadline, f"the API at {url} does not answer"
        time.sleep(0.02)


def _answers(url: str) -> bool:
    # By a socket, as a client for each question would take the processor from what starts.
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname, parts.port), timeout=_START_S) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            return connection.recv(64).startswith(b"HTTP/1.1 200 ")
    except OSError:
        return False
