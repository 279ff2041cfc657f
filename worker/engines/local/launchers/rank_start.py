"""Starts a rank as a program of its own: `python -I -S rank_start.py SCRIPT [ARGS…]`, or `… -m MODULE [ARGS…]`.

Or a command that starts the ranks itself: `… --command FIRST_RANK RANKS EXECUTABLE [ARGS…]`.

It gives the job's variables to the rank alone: the launcher before it has them under other names, so that no variable
of the job changes how the launcher works. It needs nothing but the standard library, and reads no variable of Python.
"""

import os
import sys
from typing import NoReturn

JOB_VARIABLE = "TORCHYARD_RANK_ENV_"
"""Begins the names under which the launcher has the job's variables."""


def main() -> NoReturn:
    env = {name: value for name, value in os.environ.items() if not name.startswith(JOB_VARIABLE)}
    env |= {name[len(JOB_VARIABLE) :]: os.environ[name] for name in os.environ if name.startswith(JOB_VARIABLE)}
    module = "torchyard.run.command" if sys.argv[1] == "--command" else "torchyard.run.rank"
    argv = [sys.executable, "-P", "-u", "-m", module, *sys.argv[1:]]
    os.execve(argv[0], argv, env)  # noqa: S606 no shell is wanted


if __name__ == "__main__":
    main()
