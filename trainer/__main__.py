"""One rank of a built-in recipe: `python -P -m trainer` under torchrun, in the environment of an attempt."""

import logging
import sys

import torch

import torchyard
from torchyard.errors import ConfigError
from torchyard.recipes import ImageClassification
from torchyard.run import Run
from torchyard.spec import CheckpointPolicy
from trainer.loop import Training
from trainer.randomness import be_deterministic, seed_everything
from trainer.recipes import classification
from trainer.recipes.tally import TOP
from trainer.world import World, joined

logger = logging.getLogger(__name__)


def main() -> None:
    """Trains as $TORCHYARD_CONFIG says on $TORCHYARD_DATA. Raises DataError, ConfigError and NonFiniteLoss."""
    run = torchyard.init()
    # The log that people read is rank 0's; what another rank has to warn of is in its own.
    level = logging.INFO if run.rank == 0 else logging.WARNING
    logging.basicConfig(stream=sys.stdout, level=level, format="%(asctime)s %(message)s")
    config = ImageClassification.model_validate(run.config["config"])
    policy = CheckpointPolicy.model_validate(run.config["checkpoint"])
    if config.training.deterministic:
        be_deterministic()
    with joined(config.distributed.timeout) as world:
        make_training(run, config=config, policy=policy, world=world).train()
    run.close()


def make_training(run: Run, *, config: ImageClassification, policy: CheckpointPolicy, world: World) -> Training:
    """The run that the configuration asks for, ready to train. Raises DataError and ConfigError."""
    seed_everything(config.training.seed)  # the same on every rank, and so the same initial weights
    task = classification.make_classifier(
        config, source=run.data or config.data.source, device=world.device, local_size=world.local_size
    )
    if policy.monitor == "val/accuracy_top5" and len(task.data.classes) <= TOP:
        raise ConfigError(f"checkpoint.monitor: {policy.monitor} is not measured with {len(task.data.classes)} classes")
    description = _describe(task, world)
    logger.info(description)
    run.message(description)
    return Training(task, config=config, policy=policy, run=run, world=world)


def _describe(task: classification.Classifier, world: World) -> str:
    data, count = task.data, sum(parameter.numel() for parameter in task.model.parameters())
    device = torch.cuda.get_device_name(world.device) if world.device.type == "cuda" else "CPU"
    return (
        f"{len(data.train)} training and {len(data.val)} validation pictures of {data.channels}×{data.height}×"
        f"{data.width}, {len(data.classes)} classes; {count:,} parameters; {world.size} × {device}"
    )


if __name__ == "__main__":
    main()
