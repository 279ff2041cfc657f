"""`python -P -m trainer` runs one rank of a built-in recipe, in the environment of an attempt."""

import logging
import sys

from pydantic import ValidationError

import torchyard
from torchyard.contract.errors import ConfigError
from torchyard.contract.recipes import REGISTRY, Recipe
from torchyard.contract.spec.spec import CheckpointPolicy
from torchyard.contract.wire.findings import field_errors
from torchyard.host.collector import paused
from torchyard.run import Run
from torchyard.run.accelerator import is_accelerator

with paused():
    import torch
    import torch._dynamo  # pyright: ignore[reportUnusedImport] the first optimizer imports it

    from trainer.data import loaders
    from trainer.data.scanning import Scan
    from trainer.evaluation_job import evaluate
    from trainer.precision import use_fast_kernels
    from trainer.randomness import seed_everything, use_deterministic_algorithms
    from trainer.recipes import make_task
    from trainer.recipes.tally import TOP
    from trainer.remeasure import remeasure
    from trainer.task import Task
    from trainer.train import Training
    from trainer.weights.starting import fill_from, read_initial, take_over, weights_in
    from trainer.world import World, joined


def main() -> None:
    """Does what $TORCHYARD_CONFIG says with the data in $TORCHYARD_DATA.

    Raises DataError, ConfigError and NonFiniteLoss.
    """
    run = torchyard.init()
    # Users read the log of rank 0. The logs of other ranks hold warnings only.
    level = logging.INFO if run.rank == 0 else logging.WARNING
    logging.basicConfig(stream=sys.stdout, level=level, format="%(asctime)s %(message)s")
    config = read_config(run)
    if config.training.deterministic:
        use_deterministic_algorithms()
    with joined(config.distributed.collective_timeout()) as world:
        if is_accelerator(world.device) and not config.training.deterministic:
            use_fast_kernels()
        if run.config.get("mode") == "evaluate":
            evaluate(run, config=config, world=world)
            has_trained = False
        else:
            has_trained = _train(run, config=config, world=world)
    if has_trained and run.rank == 0 and config.evaluation.remeasure_best:
        remeasure(run, policy=CheckpointPolicy.model_validate(run.config["checkpoint"]), device=world.device)
    loaders.close()
    run.close()


def read_config(run: Run) -> Recipe:
    """Returns the configuration of the job's recipe. Raises ConfigError."""
    recipe = REGISTRY.get(run.config["trainer"])
    if recipe is None:
        raise ConfigError(f"there is no recipe {run.config['trainer']} in this version of the trainer")
    try:
        return recipe.config.model_validate(run.config["config"])
    except ValidationError as error:  # of a service of another version
        faults = [f"config.{item.field}: {item.message}" for item in field_errors(error, recipe.config)]
        raise ConfigError(f"this version of the trainer cannot use it: {'; '.join(faults)}") from None


def make_training(run: Run, *, config: Recipe, world: World) -> Training:
    """Returns the run that the configuration asks for, ready to train. Raises DataError and ConfigError."""
    seed_everything(config.training.seed)  # the same on every rank, so that initial weights are equal
    state = run.resume()
    if state is not None and config.training.deterministic:
        torch.set_num_threads(state["threads"])  # the order of additions depends on the number of threads
    initial = read_initial(run) if state is None else None
    weights = run.weights or config.model.weights
    if state is not None:
        config = take_over(config, state, fresh=False)
    elif initial is not None and run.initial_folder is not None:
        config = take_over(config, initial, fresh=True)
        weights = weights if config.STARTS_ON_BASE else weights_in(run.initial_folder)
    task = make_task(
        config,
        source=run.data or config.data.source,
        weights=weights,
        device=world.device,
        local_size=world.local_size,
        metadata=state,
        scan=Scan.of_run(run, world, source=config.data.source, step=state["step"] if state else 0),
    )
    if initial is not None:
        fill_from(task, initial, run=run)
    policy = CheckpointPolicy.model_validate(run.config["checkpoint"])
    _check_monitors(task, config, policy)
    return Training(
        task, trainer=run.config["trainer"], config=config, policy=policy, run=run, world=world, state=state
    )


def _train(run: Run, *, config: Recipe, world: World) -> bool:
    """Trains to the end of the run. Returns False if it stops before, or if there is nothing to train."""
    training = make_training(run, config=config, world=world)
    had_ended = training.position.ended
    if had_ended and config.evaluation.remeasure_best:
        # Where the host killed the rank while it measured, the next attempts would end in the same way.
        run.message("the best checkpoint is not re-evaluated: the run had ended before this attempt")
    return training.train() and not had_ended


def _check_monitors(task: Task, config: Recipe, policy: CheckpointPolicy) -> None:
    stopping = config.early_stopping
    monitors = {"checkpoint.monitor": policy.monitor, "early_stopping.monitor": stopping.monitor if stopping else ""}
    classes = len(task.metadata.get("classes", ()))
    for key, metric in monitors.items():
        if metric == "val/accuracy_top5" and classes <= TOP:
            raise ConfigError(f"{key}: {metric} is not measured with {classes} classes")


if __name__ == "__main__":
    main()
