"""Runs a program that can name its threads: `python -P -I -m worker.sandbox.naming PROGRAM [ARGS…]`.

For sandboxes that a program of others makes, in which `/proc` is read-only.
"""

import os
import sys

from worker.sandbox import init
from worker.sandbox.threads import Names


def main() -> None:
    init.fork_agent(_exit_like, stops=bool, names=Names.begin())
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 it is what the job asked for


def _exit_like(code: int) -> None:
    """Ends as a program with this exit code, as a shell shows it: a signal counts from 128."""
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
