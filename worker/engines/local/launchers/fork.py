"""Runs a rank in a fork of a warm process as a fresh Python process would run it."""

from collections.abc import Sequence
import importlib
from itertools import takewhile
import multiprocessing
import os
from pathlib import Path
import sys
import tempfile
import time
from typing import NoReturn

from torchyard.contract.attempts.records import LaunchPlan
from torchyard.contract.attempts.rundir import Env
from worker.sandbox.opening import enter_real

OURS = frozenset({"worker", "trainer"})
"""Our packages that are removed from a script's process: it may have its own packages of that name."""

_last_preloaded = ""
_ours_preloaded: tuple[str, ...] = ()
"""The last module that the warm process has imported, and which of all are ours."""


def prepare() -> None:
    """Does once, after all imports of the warm process, what takes each rank long."""
    global _last_preloaded, _ours_preloaded  # noqa: PLW0603 each fork of this process inherits them
    from torchyard.run.exiting import keep_torchs_operators  # a supervisor that is a program of its own needs none

    keep_torchs_operators()
    _last_preloaded = next(reversed(sys.modules))
    _ours_preloaded = tuple(filter(_is_ours, sys.modules))


def run_rank(plan: LaunchPlan) -> NoReturn:
    """Runs the plan's program (`SCRIPT [ARGS…]` or `-m MODULE [ARGS…]`) as one rank, and exits."""
    set_environment(plan)
    from torchyard.run import rank

    _reseed()
    importlib.import_module("torch").set_num_threads(int(plan.env["OMP_NUM_THREADS"]))
    _forget_modules(recipe=Env.DATA in plan.env)
    sys.argv = [rank.__file__, *plan.argv]
    # for a program that starts itself again
    sys.orig_argv = [sys.executable, "-P", "-u", "-m", rank.__name__, *plan.argv]
    rank.main()


def run_module(argv: Sequence[str]) -> NoReturn:
    """Runs `MODULE [ARGS…]` of ours as `python -m` would, and exits."""
    sys.argv = list(argv)
    importlib.import_module(argv[0]).main()
    from torchyard.run.exiting import leave

    leave(0)


def open_logs(logs: Sequence[Path]) -> list[int]:
    """Opens files to append to. Raises OSError."""
    opened: list[int] = []
    try:
        for log in logs:
            opened.append(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600))  # noqa: PERF401
    except OSError:
        for descriptor in opened:
            os.close(descriptor)
        raise
    return opened


def redirect(logs: Sequence[int]) -> None:
    """Redirects stdout to the first open file and stderr to the second."""
    for descriptor, log in enumerate(logs, start=1):
        os.dup2(log, descriptor)
        os.close(log)


def set_environment(plan: LaunchPlan) -> None:
    """Sets the plan's variables, folder and umask, and no other variable. Raises OSError as `enter_real` does."""
    os.environ.clear()
    os.environ.update(plan.env)
    time.tzset()
    enter_real(plan.cwd)
    os.umask(plan.umask)
    tempfile.tempdir = None  # it depends on the environment


def has_preloaded() -> bool:
    """Returns whether this process is a fork of a warm process, with all its imports."""
    return "torch" in sys.modules


def _reseed() -> None:
    """Draws new seeds, as a fresh process does: a fork has the random state of its parent.

    `random` reseeds itself after a fork. torch creates its generators of GPUs with CUDA, after the fork.
    """
    importlib.import_module("numpy").random.seed()
    importlib.import_module("torch").default_generator.seed()
    multiprocessing.current_process().authkey = os.urandom(32)


def _forget_modules(*, recipe: bool) -> None:
    """Removes our modules. A recipe imports `trainer.__main__` again, and a script finds only `torchyard`."""
    # To look at all names would copy a page for nearly each: a look at an object changes its count of references.
    later = [*takewhile(lambda name: name != _last_preloaded, reversed(sys.modules))]
    for name in (*_ours_preloaded, *filter(_is_ours, later)):
        if not (recipe and name.startswith("trainer.")) or name == "trainer.__main__":
            sys.modules.pop(name, None)


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] in OURS
