"""Writes all that a script can see of its own process into the file `state-RANK.json` of its run directory."""

import sys

MODULES = sorted(sys.modules)
GLOBALS = {name: repr(value) for name, value in globals().items() if name not in {"__builtins__", "MODULES"}}
PATH = list(sys.path)
import os  # noqa: E402 the modules of a new process are read first

LINKS = {name: f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")}  # noqa: PTH208
DESCRIPTORS = {name: os.path.realpath(path) for name, path in LINKS.items() if os.path.lexists(path)}
THREADS = len(os.listdir("/proc/self/task"))  # noqa: PTH208

import contextlib  # noqa: E402
import ctypes  # noqa: E402
import faulthandler  # noqa: E402
import gc  # noqa: E402
import inspect  # noqa: E402
import json  # noqa: E402
import locale  # noqa: E402
import logging  # noqa: E402
import multiprocessing  # noqa: E402
from pathlib import Path  # noqa: E402
import random  # noqa: E402
import resource  # noqa: E402
import signal  # noqa: E402
import socket  # noqa: E402
import tempfile  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402

FILTERS = [repr(item) for item in warnings.filters]

import numpy as np  # noqa: E402
import torch  # noqa: E402


class Pickled:
    """A class of `__main__`."""


def process_state() -> dict[str, object]:
    """Returns the state by name. Each value is JSON."""
    return {
        "modules": MODULES,
        "globals": GLOBALS,
        "builtins": type(__builtins__).__name__,
        "main is the script": sys.modules["__main__"].__dict__ is globals(),
        "pickled as": Pickled.__module__,
        "source": inspect.getsource(Pickled),
        "arguments": sys.argv,
        "original arguments": sys.orig_argv,
        "command line": Path("/proc/self/cmdline").read_bytes().rstrip(b"\0").decode(),
        "executable": [sys.executable, sys.prefix, sys.exec_prefix],
        "flags": repr(sys.flags),
        "warn options": sys.warnoptions,
        "path": PATH,
        "finders": [len(sys.path_hooks), [repr(item).partition(" at ")[0] for item in sys.meta_path]],
        "hooks": [sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__],
        "unraisable": sys.unraisablehook is sys.__unraisablehook__,
        "tracing": [repr(sys.gettrace()), repr(sys.getprofile()), repr(threading.gettrace())],
        "limits of python": [sys.getrecursionlimit(), sys.getswitchinterval(), gc.isenabled(), gc.get_threshold()],
        "folder": os.getcwd(),  # noqa: PTH109
        "mask of files": _umask(),
        "environment": dict(os.environ),
        "environment of C": _of_c(),
        "descriptors": DESCRIPTORS,
        "stdin": [sys.stdin.read(), sys.stdin.name, sys.stdin.encoding, sys.stdin.errors],
        "streams": [_stream(sys.stdout), _stream(sys.stderr)],
        "session": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
        "users": [os.getresuid(), os.getresgid(), sorted(os.getgroups())],
        "priority": [os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0), sorted(os.sched_getaffinity(0))],
        "limits": {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if "RLIMIT_" in name},
        "process": {name: _prctl(number) for name, number in PRCTLS.items()} | {"oom": _read("oom_score_adj")},
        "handlers": {number.name: _handler(number) for number in signal.Signals},
        "signals": {name: _status(name) for name in ("SigBlk", "SigIgn", "SigCgt")},
        "woken by": signal.set_wakeup_fd(-1),
        "timers": [signal.getitimer(which) for which in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL)],
        "threads": [THREADS, [item.name for item in threading.enumerate()], threading.stack_size()],
        "main thread": threading.current_thread() is threading.main_thread(),
        "faults": [faulthandler.is_enabled()],
        "filters of warnings": FILTERS,
        "with those of torch": [repr(item) for item in warnings.filters],
        "logging": [logging.root.level, repr(logging.root.handlers), logging.root.manager.disable],
        "locale": [locale.setlocale(locale.LC_ALL), locale.getpreferredencoding(), sys.getfilesystemencoding()],
        "time zone": [time.tzname, time.localtime(0).tm_hour],
        "temporary": [tempfile.gettempdir(), tempfile.tempdir],
        "sockets": socket.getdefaulttimeout(),
        "multiprocessing": _multiprocessing(),
        "torch": _torch(),
        "numpy": [repr(np.geterr()), repr(np.get_printoptions())],
        "seeds": [torch.initial_seed(), multiprocessing.current_process().authkey.hex()],
        "random": [random.getstate()[1][:3], np.random.get_state(legacy=False)["state"]["key"][:3].tolist()],
    }


PRCTLS = {"death signal": 2, "dumpable": 3, "subreaper": 37, "no new privileges": 39, "no huge pages": 42}


def _umask() -> int:
    found = os.umask(0)
    os.umask(found)
    return found


def _of_c() -> dict[str, str]:
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    names = ["PATH", "RANK", "MASTER_ADDR", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TORCHYARD_JOB_ID", "LAST"]
    return {name: (getenv(name.encode()) or b"<absent>").decode() for name in names}


def _stream(stream: object) -> list[str]:
    names = ("name", "mode", "encoding", "errors", "line_buffering", "write_through", "newlines")
    return [f"{name}={getattr(stream, name)!r}" for name in names]


def _prctl(number: int) -> int:
    value = ctypes.c_int()
    if number in (2, 37):
        ctypes.CDLL(None).prctl(number, ctypes.byref(value), 0, 0, 0)
        return value.value
    return int(ctypes.CDLL(None).prctl(number, 0, 0, 0, 0))


def _read(name: str) -> str:
    return Path("/proc/self", name).read_text().strip()


def _status(name: str) -> str:
    return next(line.split()[1] for line in _read("status").splitlines() if line.startswith(name))


def _handler(number: signal.Signals) -> str:
    with contextlib.suppress(ValueError):
        return repr(signal.getsignal(number)).partition(" at ")[0]
    return "<none>"


def _multiprocessing() -> list[object]:
    process = multiprocessing.current_process()
    method = multiprocessing.get_start_method(allow_none=True)
    parent = multiprocessing.parent_process()
    return [process.name, process.daemon, len(process.authkey), method, repr(parent), multiprocessing.active_children()]


def _torch() -> dict[str, object]:
    return {
        "threads": [torch.get_num_threads(), torch.get_num_interop_threads()],
        "type": str(torch.get_default_dtype()),
        "device": str(torch.get_default_device()),
        "gradients": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "precision": torch.get_float32_matmul_precision(),
        "cuda": [torch.cuda.is_initialized(), "_lazy_init" in vars(torch.cuda)],
        "group": torch.distributed.is_initialized(),
        "sharing": torch.multiprocessing.get_sharing_strategy(),
    }


if __name__ == "__main__":
    found = process_state()
    Path(os.environ["TORCHYARD_RUN_DIR"], f"state-{os.environ['RANK']}.json").write_text(json.dumps(found))
