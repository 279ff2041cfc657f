"""One rank of a built-in recipe: `python -P -m trainer` under torchrun, in the environment of an attempt."""

from collections.abc import Mapping
import logging
import sys
from typing import Any

import torchyard
from torchyard.contract.collector import paused
from torchyard.contract.errors import ConfigError, DataError
from torchyard.contract.recipes import REGISTRY, Recipe
from torchyard.contract.spec import CheckpointPolicy
from torchyard.run import Run

with paused():
    import torch
    import torch._dynamo  # pyright: ignore[reportUnusedImport] the first optimizer imports it

    from trainer.loop import Training
    from trainer.randomness import be_deterministic, seed_everything
    from trainer.recipes import make_task
    from trainer.recipes.tally import TOP
    from trainer.task import Task
    from trainer.world import World, joined


def main() -> None:
    """Trains as $TORCHYARD_CONFIG says on $TORCHYARD_DATA. Raises DataError, ConfigError and NonFiniteLoss."""
    run = torchyard.init()
    # The log that people read is rank 0's; what another rank has to warn of is in its own.
    level = logging.INFO if run.rank == 0 else logging.WARNING
    logging.basicConfig(stream=sys.stdout, level=level, format="%(asctime)s %(message)s")
    config = read_config(run)
    if config.training.deterministic:
        be_deterministic()
    with joined(config.distributed.collective_timeout()) as world:
        make_training(run, config=config, world=world).train()
    run.close()


def read_config(run: Run) -> Recipe:
    """Returns the configuration of the job's recipe. Raises ConfigError."""
    recipe = REGISTRY.get(run.config["trainer"])
    if recipe is None:
        raise ConfigError(f"there is no recipe {run.config['trainer']} in this version of the trainer")
    return recipe.config.model_validate(run.config["config"])


def make_training(run: Run, *, config: Recipe, world: World) -> Training:
    """The run that the configuration asks for, ready to train. Raises DataError and ConfigError."""
    seed_everything(config.training.seed)  # the same on every rank, and so the same initial weights
    state = run.resume()
    if state is not None and config.training.deterministic:
        torch.set_num_threads(state["threads"])  # sums over parts depend on how many there are
    task = make_task(
        config,
        source=run.data or config.data.source,
        weights=run.weights or config.model.weights,
        device=world.device,
        local_size=world.local_size,
        metadata=state,
    )
    _check_data(task, world, state)
    policy = CheckpointPolicy.model_validate(run.config["checkpoint"])
    _check_monitors(task, config, policy)
    return Training(
        task, trainer=run.config["trainer"], config=config, policy=policy, run=run, world=world, state=state
    )


def _check_data(task: Task, world: World, state: Mapping[str, Any] | None) -> None:
    """All ranks, and all attempts, train and hold out the same samples."""
    ours = (task.data_hash, task.split_hash)
    if world.agree(ours) != ours:
        raise DataError("the ranks do not see the same data: is the source being written to?")
    if state is not None and (state["data_hash"], state["split_hash"]) != ours:
        raise DataError(
            "the data is not that of the checkpoint any more: samples were added, removed or changed since. Submit a "
            "new job, or bring the data back"
        )


def _check_monitors(task: Task, config: Recipe, policy: CheckpointPolicy) -> None:
    stopping = config.early_stopping
    monitors = {"checkpoint.monitor": policy.monitor, "early_stopping.monitor": stopping.monitor if stopping else ""}
    classes = len(task.metadata.get("classes", ()))
    for key, metric in monitors.items():
        if metric == "val/accuracy_top5" and classes <= TOP:
            raise ConfigError(f"{key}: {metric} is not measured with {classes} classes")


if __name__ == "__main__":
    main()
