"""Forking from a warm process: what a child sheds, and how it becomes a rank as a fresh Python would be one."""

from collections.abc import Callable, Collection, Mapping, Sequence
import contextlib
import importlib
import multiprocessing
import os
from pathlib import Path
import signal
import sys
import tempfile
import time
import traceback
from typing import NoReturn

from torchyard.run import rank
from torchyard.run.exiting import leave

OURS = frozenset({"worker", "trainer"})
"""Packages of ours that no script expects to be imported already: it may have its own of that name."""

_RESET = {
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGCHLD: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
}


def child(be: Callable[[], NoReturn], *, keep: Collection[int] = ()) -> int:
    """Forks a child that sheds what it has of its parent but the descriptors `keep`, and is `be`. Answers its pid.

    Whatever leaves `be` ends the child. A signal that comes too early meets the child's own handlers. Raises OSError.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _RESET)
    try:
        pid = os.fork()
    except OSError:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        raise
    if pid:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return pid
    code = 1
    try:
        _shed(keep)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        be()
    except SystemExit as error:
        code = _exit_code(error)
    except BaseException:  # noqa: BLE001 nothing may return into the parent's frames
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(code)


def become_rank(program: Sequence[str], *, env: Mapping[str, str], cwd: str) -> NoReturn:
    """Runs `program` (`SCRIPT [ARGS…]` or `-m MODULE [ARGS…]`) as one rank, and leaves."""
    _enter(env, cwd)
    _renew_randomness()
    importlib.import_module("torch").set_num_threads(int(env["OMP_NUM_THREADS"]))
    _forget_modules(program)
    sys.argv = [rank.__file__, *program]
    sys.orig_argv = [sys.executable, "-P", "-u", "-m", rank.__name__, *program]  # for one that starts itself again
    rank.main()


def become_module(argv: Sequence[str], *, env: Mapping[str, str], cwd: str, logs: tuple[Path, Path]) -> NoReturn:
    """Runs `python -P -m MODULE [ARGS…]` of ours, with its output in `logs` (stdout, stderr), and leaves."""
    for descriptor, log in enumerate(logs, start=1):
        opened = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)
    _enter(env, cwd)
    sys.argv = list(argv[3:])
    importlib.import_module(argv[3]).main()
    leave(0)


def is_fork() -> bool:
    """Whether this process has all that a warm process has imported."""
    return "torch" in sys.modules


def _enter(env: Mapping[str, str], cwd: str) -> None:
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    os.chdir(cwd)
    tempfile.tempdir = None  # it was chosen by the parent's variables


def _shed(keep: Collection[int]) -> None:
    """The session, the handlers of signals, and every descriptor but the standard ones and `keep`."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number, handler in _RESET.items():
        signal.signal(number, handler)
    first = 3
    for descriptor in sorted(keep):
        os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def _renew_randomness() -> None:
    """What a fresh process draws from the system, and a fork has in common with its parent.

    `random` does so itself. torch's generators of GPUs begin with CUDA, after the fork.
    """
    importlib.import_module("numpy").random.seed()
    importlib.import_module("torch").default_generator.seed()
    multiprocessing.current_process().authkey = os.urandom(32)


def _forget_modules(program: Sequence[str]) -> None:
    """A recipe runs `trainer.__main__` afresh; a script finds none of our packages but `torchyard`."""
    kept = {"trainer"} if program[0] == "-m" else set[str]()
    for name in list(sys.modules):
        if name.partition(".")[0] in OURS - kept or name == "trainer.__main__":
            del sys.modules[name]


def _exit_code(error: SystemExit) -> int:
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    print(error.code, file=sys.stderr)  # noqa: T201 as Python does
    return 1
