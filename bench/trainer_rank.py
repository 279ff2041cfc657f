"""`torchrun -m bench.trainer_rank SETTINGS` runs the trainer for `bench.trainer_overhead`.

It runs `trainer.__main__` in a run directory, and reads the clock after each step.
"""

import logging
import os
import sys

from bench.turns import Clock, TrainingSettings
from torchyard.run import Run
from trainer.__main__ import make_training, read_config
from trainer.world import joined


class TimedRun(Run):
    """A run that reads the clock when the trainer checks for a stop, at the end of each step."""

    clock: Clock

    def should_stop(self) -> bool:
        stop = super().should_stop()
        self.clock.step()
        return stop


def main() -> None:
    """Trains with one set of settings."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    run = TimedRun(os.environ)
    run.clock = Clock(TrainingSettings.read(sys.argv[1]))
    run.attach()
    config = read_config(run)
    with joined(config.distributed.collective_timeout()) as world:
        training = make_training(run, config=config, world=world)
        run.clock.ready()
        training.train()
        run.clock.finish(training.task.model)
    run.close()


if __name__ == "__main__":
    main()
