"""The server from which tests fork processes. It has imported what any of them needs."""

from multiprocessing import get_context

context = get_context("forkserver")
_modules: list[str] = []


def preload(*modules: str) -> None:
    """Has the server import these modules too. Call it when the tests are imported: the first process starts it."""
    _modules.extend(modules)
    context.set_forkserver_preload(_modules)
