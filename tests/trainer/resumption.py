"""Trains, stops and resumes a job in the run directories of a folder, by this or an older version of the trainer.

`python resumption.py FOLDER SCENARIO`: SCENARIO is JSON with `config`, `checkpoint`, `ranks`, `data` and `attempts`.
An attempt is the name of its run directory, the step at which the ranks stop, and the checkpoint to resume from; the
last two may be null.
"""

import json
from pathlib import Path
import sys
from typing import Any

from tests.trainer.ranks import environment, job, on_ranks, results
import torchyard
import trainer
from trainer import __main__ as program


def train(stop_at: int | None) -> bool:
    """Runs the trainer. All ranks are told to stop after `stop_at` steps of this attempt."""
    run = torchyard.init()
    steps = 0

    def should_stop() -> bool:
        nonlocal steps
        steps += 1
        return steps == stop_at

    run.should_stop = should_stop
    program.main()
    return True


def attempt(folder: Path, scenario: dict[str, Any], name: str, stop_at: int | None, resume_from: str | None) -> None:
    """Runs one attempt in the run directory `folder / name`."""
    run = job(folder / name, scenario["config"], checkpoint=scenario["checkpoint"])
    resume = folder / resume_from if resume_from else None
    env = environment(run, data=scenario["data"], resume_from=resume)
    results(on_ranks(scenario["ranks"], train, stop_at, env=env))


def main() -> None:
    folder, scenario = Path(sys.argv[1]), json.loads(sys.argv[2])
    for name, stop_at, resume_from in scenario["attempts"]:
        attempt(folder, scenario, name, stop_at, resume_from)
    sys.stdout.write(f"trained by {trainer.__path__[0]}\n")


if __name__ == "__main__":
    main()
