"""A small program instead of torchrun, for tests that need no torch: it starts each rank in a session of its own.

`python launcher.py RANKS SCRIPT [ARGS…]`. RANKS: how many, or the first and the last one, such as `2-3`, perhaps with
`@` and the Python that runs them. When one fails, the others get SIGTERM.
"""

import os
import subprocess
import sys
import time

from worker.engines.local.launchers import rank_start


def main() -> None:
    ranks, _, python = sys.argv[1].partition("@")
    first, _, last = ranks.rpartition("-")
    numbers = range(int(first), int(last) + 1) if first else range(int(last))
    command = [python or sys.executable, "-I", "-S", rank_start.__file__, *sys.argv[2:]]
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
