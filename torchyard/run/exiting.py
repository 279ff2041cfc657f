"""The end of a process that has imported torch: taking the interpreter apart takes it a second, flushing does not."""

import atexit
from collections.abc import Callable, Iterable
import contextlib
import ctypes
import gc
import io
import os
import sys
import threading
from typing import Any, NoReturn, TextIO
import weakref

_FLUSH_FAILED = 120
"""The exit status of a Python whose output cannot be flushed."""

_FILE = io.IOBase.__mro__[1]
"""Of which each file is; not the abstract class, whose checks are slow."""


def leave(code: int) -> NoReturn:
    """Ends the process with status `code`, having done what a program may rely on at the end of Python.

    Threads that are no daemons have ended, `atexit` has called its functions, what `__main__` alone held is finalized,
    and open files are flushed. Modules are not finalized, and neither are the libraries that they have loaded.
    """
    _keep_torchs_operators()
    _quietly(threading._shutdown)  # pyright: ignore # what Py_Finalize itself calls
    _quietly(atexit._run_exitfuncs)  # pyright: ignore # so does it
    _each(_files(), "flush")  # what lies below a file in a cycle may be finalized before it
    threading.excepthook = lambda _: None  # a daemon's thread, which goes on, may miss what is cleared now
    main = sys.modules.get("__main__")
    if main is not None:
        vars(main).clear()
    _quietly(gc.collect)
    flushed = _end_files()
    ctypes.CDLL(None).fflush(None)
    os._exit(code if flushed else _FLUSH_FAILED)


def _keep_torchs_operators() -> None:
    """Unregistering its 187 libraries of operators one by one takes torch a tenth of a second."""
    for item in list(weakref.finalize._registry):  # pyright: ignore # it has no public list
        found = item.peek()
        if found is not None and found[1].__module__ == "torch.library":
            item.atexit = False


def _quietly(do: Callable[[], object]) -> None:
    """What it raises is shown, and changes nothing of the exit status, as in Python's own end."""
    try:
        do()
    except BaseException as error:  # noqa: BLE001 SystemExit included: the process is leaving already
        sys.excepthook(type(error), error, error.__traceback__)


def _end_files() -> bool:
    """Flushes and closes as their finalizers would. False where stdout or stderr cannot be flushed."""
    files = _files()
    _each(files, "flush")
    flushed = all([_flush(sys.stdout), _flush(sys.stderr)])
    packed = [item for item in files if type(item).__module__ != _FILE.__module__]
    _each(packed, "close")  # gzip's and others write their end only then
    _each(files, "flush")
    return flushed


def _files() -> list[Any]:
    zips = getattr(sys.modules.get("zipfile"), "ZipFile", _FILE)
    return [item for item in gc.get_objects() if issubclass(type(item), (_FILE, zips))]


def _each(files: Iterable[Any], method: str) -> None:
    for item in files:
        with contextlib.suppress(BaseException):  # as in Python's own end, where nobody hears of it
            if not getattr(item, "closed", False):
                getattr(item, method)()


def _flush(file: TextIO | None) -> bool:
    try:
        if file is not None and not file.closed:
            file.flush()
    except (OSError, ValueError):
        return False
    return True
