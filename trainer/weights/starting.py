"""Starts a run from the weights of another run's checkpoint, and says what of them does not fit."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor, nn

from torchyard.contract.errors import ConfigError, DataError
from torchyard.contract.recipes import Normalization, Recipe
from torchyard.models import checkpoint, vision
from torchyard.run import Run
from trainer.task import Task
from trainer.weights.files import copy_fitting
from trainer.weights.language import check_start
from trainer.weights.telling import head, listed

R = TypeVar("R", bound=Recipe)

_TOKENIZER = "tokenizer.json"


def read_initial(run: Run) -> dict[str, Any] | None:
    """Returns the state that the job's `init_from` names; None if it names none, or the job goes on from its own.

    Raises DataError for what is no checkpoint, and ConfigError for one of another recipe.
    """
    if run.initial_folder is None:
        return None
    try:
        state = checkpoint.read(checkpoint.state_in(run.initial_folder))
    except DataError as error:
        raise DataError(f"init_from: {error.message}") from error
    if state["recipe"] != run.config["trainer"]:
        raise ConfigError(f"init_from: the checkpoint is of {state['recipe']}, not of {run.config['trainer']}")
    return state


def weights_in(folder: Path) -> str:
    """Returns what `make_task` takes as weights: a folder that has a tokenizer, as a text needs the weights' own."""
    return str(folder) if (folder / _TOKENIZER).exists() else "none"


def take_over(config: R, state: Mapping[str, Any], *, fresh: bool) -> R:
    """Returns the configuration with what belongs to the weights of a checkpoint's `state`.

    Which published weights they come from, as a model may be built for those; and for a `fresh` start the normalization
    of pictures, where the configuration leaves that to the data.
    """
    published = checkpoint.config_of("init_from", state).model.weights
    if config.model.weights == "none" and vision.is_published(published):
        config = config.model_copy(update={"model": config.model.model_copy(update={"weights": published})})
    if fresh and getattr(config.data, "normalize", None) == "auto":
        normalization = Normalization.model_validate(state["normalization"])
        config = config.model_copy(update={"data": config.data.model_copy(update={"normalize": normalization})})
    return config


def fill_from(task: Task, state: Mapping[str, Any], *, run: Run) -> None:
    """Copies the weights that fit by name and shape into the task's model, and tells the job what does not.

    The head stays new if the classes are others, or in another order. Raises ConfigError if nothing fits.
    """
    model, tensors = task.model, dict(state["model"])
    if "encoder.pos_embedding" in tensors:
        tensors = vision.fit_position_embeddings(model, tensors)
    now, before = task.metadata.get("classes", []), state.get("classes", [])
    other = set[str]() if now == before else head(model, classes=len(now))
    said = check_start(task.metadata, state) if "form" in task.metadata else None
    filled = copy_fitting(model, {name: tensor for name, tensor in tensors.items() if name not in other})
    if task.unfilled is not None:
        task.unfilled.weights.update({name: tensors[name] for name in filled & task.unfilled.weights.keys()})
    kept = model.state_dict()
    names = [name for name, _ in model.named_parameters() if name in kept]  # those of a base are not
    new = [name for name in names if name not in filled]
    if len(new) == len(names):
        raise ConfigError(_nothing_fits(model, tensors, state))
    left = [name for name in tensors if name not in filled]
    parts = [f"{len(names) - len(new)} of {len(names)} parameters start from the checkpoint"]
    parts += [f"new: {listed(new)}"] if new else []
    parts += [f"left out: {listed(left)}"] if left else []
    if now != before:
        others = "in another order" if sorted(now) == sorted(before) else f"others, {listed(before)}"
        parts.append(f"its classes are {others}: the head is new")
    parts += [said] if said else []
    run.message("; ".join(parts), "warning" if new and now == before else "info")


def load_weights(task: Task, weights: Mapping[str, Tensor]) -> None:
    """Loads the weights of a checkpoint, unless the strategy reads them part by part. Raises RuntimeError."""
    if task.unfilled is None or not weights.keys() <= task.unfilled.weights.keys():
        task.model.load_state_dict(weights)


def _nothing_fits(model: nn.Module, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> str:
    saved = checkpoint.config_of("init_from", state).model
    name = getattr(saved, "name", None)
    instead = "name a base like its own as config.model.weights" if name is None else "set config.model.name to its own"
    return (
        f"init_from: no weight of the checkpoint fits the model. The checkpoint has a {name or 'model'} with "
        f"{listed(list(tensors))}; the model has {listed([name for name, _ in model.named_parameters()])}: {instead}"
    )
