"""A chaos run: `python -m tests.chaos --seed 1 --jobs 12 --kills 20 --minutes 1`.

Real jobs train on a real service while its processes are killed and its network, disk and Redis fail. Then all heals,
the jobs end, and their history is read over REST and compared with that of undisturbed runs. Exits with 0 only where
nothing that the service promises was broken, with 1 otherwise; nothing is left running either way.
"""

import argparse
from pathlib import Path
import signal
import sys
import tempfile
from types import FrameType

from tests.chaos.jobs import KINDS
from tests.chaos.run import Options, run
from tests.hosts.lab import missing


def main() -> int:
    parser = argparse.ArgumentParser(prog="chaos", description="Breaks a Torchyard service and checks its history.")
    parser.add_argument("--seed", type=int, default=1, help="decides what goes wrong and when")
    parser.add_argument("--jobs", type=int, default=12, help="how many at most")
    parser.add_argument("--kills", type=int, default=20, help="for every three there is one other trouble")
    parser.add_argument("--minutes", type=float, default=1.0, help="of trouble; before and after it come some more")
    parser.add_argument("--database", choices=("postgresql", "sqlite"), default="postgresql")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="of jobs")
    parser.add_argument("--trials", type=int, default=20, help="of a sweep that the service makes meanwhile")
    parser.add_argument("--boxes", action="store_true", help="two of three workers join over HTTPS from boxes (root)")
    arguments = parser.parse_args()
    if arguments.boxes and (lacking := missing()) is not None:
        parser.error(lacking)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    with tempfile.TemporaryDirectory(prefix="torchyard-chaos-", ignore_cleanup_errors=True) as folder:
        try:
            report = run(Path(folder), Options(**vars(arguments)))
        except KeyboardInterrupt:
            print("interrupted: all that was started is gone", file=sys.stderr)
            return 130
    print(report)
    return 1 if report.violations else 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Handles one signal: a second one would interrupt the cleanup."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
