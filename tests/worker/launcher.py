"""A small program instead of torchrun, for tests that need no torch: it starts each rank in a session of its own.

`python launcher.py WORLD_SIZE SCRIPT [ARGS…]`. When one fails, the others get SIGTERM.
"""

import os
import subprocess
import sys
import time

from worker.engines.local.launchers import rank_start


def main() -> None:
    world_size = int(sys.argv[1])
    command = [sys.executable, "-I", "-S", rank_start.__file__, *sys.argv[2:]]
    ranks = [
        subprocess.Popen(command, env=os.environ | {"RANK": str(rank)}, start_new_session=True)
        for rank in range(world_size)
    ]
    while True:
        codes = [rank.poll() for rank in ranks]
        if any(codes):
            break
        if None not in codes:
            return
        time.sleep(0.02)
    for rank in ranks:
        rank.terminate()
    for rank in ranks:
        rank.wait()
    sys.exit(1)


if __name__ == "__main__":
    main()
