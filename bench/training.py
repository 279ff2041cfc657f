"""Trains as a job does, without the service, and exits with a message if a training fails."""

from collections.abc import Sequence
from pathlib import Path
import sys
from typing import Any

from bench.torchrun import environment, run_dir, started
from torchyard.contract.attempts.records import RankError
from torchyard.contract.attempts.rundir import RunDir
from torchyard.host.recordfiles import read_record

TRAINER = ("-P", "-u", "-m", "torchyard.run.rank", "-m", "trainer")
"""The program of a rank of a recipe."""


def train(
    job: dict[str, Any], *, name: str, folder: Path, source: str, processes: int, program: Sequence[str] = TRAINER
) -> RunDir:
    """Runs `program` for a job, whose data is `source`, below `folder`. Returns its run directory."""
    run = run_dir(folder / "run", job)
    env, log = environment(run, data=source), folder / "torchrun.log"
    with started(program, processes=processes, env=env, log=log) as process:
        process.communicate()
    if process.returncode:
        sys.exit(f"{name}: {_failure(run, log)}")
    return run


def _failure(run: RunDir, log: Path) -> str:
    """Returns the error of the first rank that failed, or the end of the launcher's log."""
    records = [read_record(path, RankError) for path in run.errors.iterdir()]
    first = min((record for record in records if record), key=lambda record: record.time, default=None)
    return first.message if first else "\n".join(log.read_text(errors="replace").splitlines()[-20:])
