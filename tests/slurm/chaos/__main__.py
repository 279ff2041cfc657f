"""`python -m tests.slurm.chaos --seed 1 --faults 30`: breaks a Slurm and the worker of its pool. Needs root."""

import argparse
from pathlib import Path
import sys
import tempfile

from tests.slurm.chaos.run import run
from tests.slurm.lab import missing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=30)
    parser.add_argument("--jobs", type=int, default=8)
    asked = parser.parse_args()
    reason = missing()
    if reason is not None:
        sys.exit(reason)
    with tempfile.TemporaryDirectory(prefix="lab-") as folder:
        report = run(Path(folder), seed=asked.seed, faults=asked.faults, jobs=asked.jobs)
    print(report)
    sys.exit(1 if report.violations else 0)


if __name__ == "__main__":
    main()
