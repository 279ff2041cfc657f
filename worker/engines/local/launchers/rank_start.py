"""Starts a rank as a program of its own: `python -I -S rank_start.py SCRIPT [ARGS…]`, or `… -m MODULE [ARGS…]`.

Or a command that starts the ranks itself: `… --command FIRST_RANK RANKS EXECUTABLE [ARGS…]`.

It writes the variables of each rank to `ranks/N.variables` in the run directory, for what a user starts beside it.

It gives the job's variables to the rank alone: the launcher before it has them under other names, so that no variable
of the job changes how the launcher works. It needs nothing but the standard library, from Python 3.10 on, and reads no
variable of Python.
"""

from collections.abc import Iterable, Mapping
import os
import sys
from typing import NoReturn

JOB_VARIABLE = "TORCHYARD_RANK_ENV_"
"""Begins the names under which the launcher has the job's variables."""
RUN_PACKAGE = "TORCHYARD_RUN_PACKAGE"
"""The variable with a folder that has `torchyard.run` alone, for an environment in which it is not installed."""
_START = """
import sys
del sys.path[0]
sys.path.insert(0, sys.argv.pop(1))
import torchyard.run
sys.path = [path for path in sys.path if path != sys.path[0]] + sys.path[:1]
del sys.argv[0]
import runpy
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
"""Imports `torchyard` from its folder, whatever the environment has of that name, and leaves that last on the path."""


def main() -> NoReturn:
    env = {name: value for name, value in os.environ.items() if not name.startswith(JOB_VARIABLE)}
    env |= {name[len(JOB_VARIABLE) :]: os.environ[name] for name in os.environ if name.startswith(JOB_VARIABLE)}
    is_command = sys.argv[1] == "--command"
    module = "torchyard.run.command" if is_command else "torchyard.run.rank"
    package = env.pop(RUN_PACKAGE, None)
    if package is None:
        argv = [sys.executable, "-P", "-u", "-m", module, *sys.argv[1:]]
    else:  # `-P` is known from Python 3.11 on
        env["PYTHONPATH"] = os.pathsep.join([*filter(None, [env.get("PYTHONPATH")]), package])
        argv = [sys.executable, "-u", "-c", _START, package, module, *sys.argv[1:]]
    first, count = map(int, sys.argv[2:4] if is_command else (env["RANK"], 1))
    _write(env, range(first, first + count))
    os.execve(argv[0], argv, env)  # noqa: S606 no shell is wanted


def _write(env: Mapping[str, str], ranks: Iterable[int]) -> None:
    content = b"".join(os.fsencode(f"{name}={value}\0") for name, value in env.items())
    for rank in ranks:
        path = os.path.join(env["TORCHYARD_RUN_DIR"], "ranks", f"{rank}.variables")  # noqa: PTH118 nothing is imported
        try:
            with open(f"{path}.new", "wb") as file:  # noqa: PTH123
                file.write(content)
            os.replace(f"{path}.new", path)  # noqa: PTH105
        except OSError:  # the disk is full: the rank itself may do without
            return


if __name__ == "__main__":
    main()
