"""The server from which tests fork processes. It has imported what any of them needs."""

from collections import deque
from collections.abc import Callable
from importlib import import_module
import logging
from multiprocessing import connection, get_context
import multiprocessing.forkserver
import os
import socket
import sys
import threading
from typing import Any, NoReturn, TextIO, cast
import warnings

from torchyard.host.collector import paused
from worker.engines.local.warm.memory import join_pages

_MANY_TESTS = 1000

context = get_context("forkserver")
_modules: list[str] = []
_made: list[Callable[[], object]] = []
_servers: list[int] = []


def preload(*modules: str) -> None:
    """Has the server import these modules too. Call it when the tests are imported: the first process starts it."""
    _modules.extend(modules)
    context.set_forkserver_preload(_modules)


def make_first(make: Callable[[], object]) -> None:
    """Has the process that starts workers call this, so that they have what it keeps. Call it as `preload`."""
    _made.append(make)


def start_server(*, tests: int) -> None:
    """Imports here what the server preloads, and starts it as a fork of this process.

    Forks of this process use it too. Where they run many tests, what most workers need is made here, and the small
    pages of its memory are joined first: a fork of the server then takes a third of the time, and joining them takes
    that of sixty forks.
    """
    if not _modules:
        return
    with paused():
        for name in _modules:
            import_module(name)
        if tests > _MANY_TESTS:
            for make in _made:
                make()
    if tests > _MANY_TESTS:
        deque(join_pages(), maxlen=0)
    sys.stdout.flush()
    sys.stderr.flush()
    with socket.socket(socket.AF_UNIX) as listener:
        address = cast(Any, connection).arbitrary_address("AF_UNIX")
        listener.bind(address)
        listener.listen()
        ended, alive = os.pipe()
        if not (server := os.fork()):
            os.close(alive)
            _serve(listener.detach(), ended)
        _servers.append(server)
        os.close(ended)
    known = cast(Any, multiprocessing.forkserver)._forkserver
    known._forkserver_address, known._forkserver_alive_fd = address, alive
    known.ensure_running = lambda: None  # it would wait for a child of its own


def end_server() -> None:
    """Ends the server that this process has started, once its forks have ended too."""
    while _servers:
        os.close(cast(Any, multiprocessing.forkserver)._forkserver._forkserver_alive_fd)
        os.waitpid(_servers.pop(), 0)


def open_output(descriptor: int, name: str) -> TextIO:
    """Opens stdout or stderr as Python does when it starts."""
    file = open(descriptor, "w", buffering=1, closefd=False)  # noqa: SIM115 - as long as the process
    cast(Any, file.buffer).raw.name = name  # as Python names it
    return file


def _restore_defaults() -> None:
    """Takes back what pytest has set: forks are as new interpreters, but for what is imported."""
    sys.unraisablehook, threading.excepthook = sys.__unraisablehook__, threading.__excepthook__
    sys.stdout, sys.stderr = open_output(1, "<stdout>"), open_output(2, "<stderr>")
    logging.root.handlers.clear()
    logging.root.setLevel(logging.WARNING)
    warnings.resetwarnings()
    for ignored in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
        warnings.simplefilter("ignore", ignored)


def _serve(listener: int, ended: int) -> NoReturn:
    """Serves until no process has the other end of `ended`."""
    _restore_defaults()
    try:
        multiprocessing.forkserver.main(listener, ended, _modules)
    finally:
        os._exit(0)
