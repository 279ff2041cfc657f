"""Ends a process that has imported torch: tearing down the interpreter takes a second, flushing its files does not."""

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
"""The base class of all files. Not io.IOBase itself: the checks of an abstract class are slow."""


def leave(code: int) -> NoReturn:
    """Ends the process with exit status `code`, after all that a program may rely on at the end of Python.

    Waits for threads that are not daemons, calls the functions of `atexit`, finalizes what only `__main__` refers to,
    and flushes open files. Modules, and the libraries that they have loaded, are not finalized.
    """
    keep_torchs_operators()
    _quietly(threading._shutdown)  # pyright: ignore # what Py_Finalize itself calls
    _quietly(atexit._run_exitfuncs)  # pyright: ignore # so does it
    _each(_files(), "flush")  # a file in a cycle may be finalized after the file that it writes to
    threading.excepthook = lambda _: None  # daemon threads go on, and may fail on what is cleared now
    main = sys.modules.get("__main__")
    if main is not None:
        vars(main).clear()
    _quietly(gc.collect)
    flushed = _end_files()
    ctypes.CDLL(None).fflush(None)
    os._exit(code if flushed else _FLUSH_FAILED)


def keep_torchs_operators() -> None:
    """Forgets the finalizers of torch's 187 operator libraries, which take a tenth of a second."""
    for item in list(weakref.finalize._registry):  # pyright: ignore # it has no public list
        found = item.peek()
        if found is not None and found[1].__module__ == "torch.library":
            item.detach()


def _quietly(do: Callable[[], object]) -> None:
    """Calls `do`, and shows an exception without changing the exit status, as Python does at its end."""
    try:
        do()
    except BaseException as error:  # noqa: BLE001 SystemExit included: the process is leaving already
        sys.excepthook(type(error), error, error.__traceback__)


def _end_files() -> bool:
    """Flushes and closes files as their finalizers would. Returns False if stdout or stderr cannot be flushed."""
    files = _files()
    _each(files, "flush")
    flushed = all([_flush(sys.stdout), _flush(sys.stderr)])
    packed = [item for item in files if type(item).__module__ != _FILE.__module__]
    _each(packed, "close")  # gzip files and others write their last bytes only now
    _each(files, "flush")
    return flushed


def _files() -> list[Any]:
    zips = getattr(sys.modules.get("zipfile"), "ZipFile", _FILE)
    return [item for item in gc.get_objects() if issubclass(type(item), (_FILE, zips))]


def _each(files: Iterable[Any], method: str) -> None:
    for item in files:
        with contextlib.suppress(BaseException):  # as at the end of Python, where nobody hears of it
            if not getattr(item, "closed", False):
                getattr(item, method)()


def _flush(file: TextIO | None) -> bool:
    try:
        if file is not None and not file.closed:
            file.flush()
    except (OSError, ValueError):
        return False
    return True
