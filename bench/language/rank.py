"""`torchrun -m bench.language.rank SETTINGS` runs the trainer for `python -m bench.language`."""

import json
import logging
import os
import sys
from typing import Any

from safetensors.torch import load_file

from bench.language.settings import LanguageSettings
from bench.trainer_rank import TimedRun
from bench.turns import Clock
from trainer.__main__ import make_training, read_config
from trainer.metrics import Step
from trainer.train import Training
from trainer.world import joined

PROGRAM = "torchyard"


def main() -> None:
    """Trains with one set of settings."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    settings = LanguageSettings.read(sys.argv[1])
    run = TimedRun(os.environ)
    run.clock = Clock(settings)
    run.attach()
    config = read_config(run)
    with joined(config.distributed.collective_timeout()) as world:
        training = make_training(run, config=config, world=world)
        if settings.method == "lora":
            training.task.model.load_state_dict(load_file(settings.adapter))
        steps = _kept(training)
        run.clock.ready()
        training.train()
        losses = [step.loss.item() for step in steps]
        settings.losses(PROGRAM).write_text(json.dumps(losses))
        run.clock.finish(training.task.model)
    run.close()


def _kept(training: Training) -> list[Step]:
    """Returns a list to which what the steps have measured will be added."""
    steps: list[Step] = []
    take = training.train_step

    def kept(*args: Any, **options: Any) -> Step:
        steps.append(take(*args, **options))
        return steps[-1]

    training.train_step = kept  # pyright: ignore[reportAttributeAccessIssue] it is a method
    return steps


if __name__ == "__main__":
    main()
