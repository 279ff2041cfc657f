"""A small program instead of torchrun, for tests that need no torch: it starts each rank in a session of its own.

`python -I -S launcher.py RANKS SCRIPT [ARGS…]`. RANKS: how many, or the first and the last one, such as `2-3`, with
`@` and the Python that runs them, or not. When one fails, the others get SIGTERM.
"""

import os
import subprocess
import sys
import time

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
_RANK = f"{_ROOT}/worker/engines/local/launchers/rank_start.py"


def main() -> None:
    ranks, _, python = sys.argv[1].partition("@")
    first, _, last = ranks.rpartition("-")
    numbers = range(int(first), int(last) + 1) if first else range(int(last))
    command = [python or sys.executable, "-I", "-S", _RANK, *sys.argv[2:]]
    started = [
        subprocess.Popen(command, env=os.environ | {"RANK": str(rank)}, start_new_session=True) for rank in numbers
    ]
    while True:
        codes = [rank.poll() for rank in started]
        if any(codes):
            break
        if None not in codes:
            return
        time.sleep(0.02)
    for rank in started:
        rank.terminate()
    for rank in started:
        rank.wait()
    sys.exit(1)


if __name__ == "__main__":
    main()
