"""The server from which tests fork processes. It has imported what any of them needs."""

from multiprocessing import forkserver, get_context
import os

context = get_context("forkserver")
_LAST = "tests.frozen"
_modules: list[str] = []


def preload(*modules: str) -> None:
    """Has the server import these modules too. Call it when the tests are imported: the first process starts it."""
    _modules.extend(module for module in modules if module not in _modules)
    context.set_forkserver_preload([*_modules, _LAST])


def start() -> None:
    """Starts the server now, so that processes which are forked from this one share it: its imports are made once."""
    forkserver.ensure_running()
    os.register_at_fork(after_in_child=_share)


def _share() -> None:
    """Has a forked process use its parent's server, for which it cannot wait as for a child of its own."""
    vars(forkserver)["_forkserver"].ensure_running = lambda: None
