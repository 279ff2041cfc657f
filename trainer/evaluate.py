"""`python -P -m trainer.evaluate STATE_PT` evaluates a checkpoint's weights in one process.

Prints one line of JSON. Batches and CPU threads are those of the training, so that the same machine computes the same
metrics.
"""

import argparse
import json
from pathlib import Path
import sys
from typing import Any

from pydantic import ValidationError

from torchyard.contract.errors import ConfigError, DataError, TorchyardError
from torchyard.contract.recipes import REGISTRY, Recipe
from torchyard.host.collector import paused
from torchyard.run.accelerator import own_device

with paused():
    import torch

    from trainer.precision import Precision
    from trainer.recipes import make_task


def main() -> None:
    """Prints the metrics. Exits with 1 and one line on stderr if the checkpoint or the data cannot be used."""
    parser = argparse.ArgumentParser(prog="trainer.evaluate", description="Evaluate a checkpoint's weights.")
    parser.add_argument(
        "state",
        metavar="STATE_PT",
        help="the path of the checkpoint's state.pt; `-`: read the path from a line of stdin",
    )
    parser.add_argument(
        "--data", metavar="SOURCE", help="`digits`, a path or a file:// URL; default: the training's source"
    )
    parser.add_argument("--device", default="auto", help="`auto`, `cpu`, `cuda`, `cuda:1`, …")
    arguments = parser.parse_args()
    state = sys.stdin.readline().rstrip("\n") if arguments.state == "-" else arguments.state
    try:
        result = evaluate(Path(state), source=arguments.data, device=arguments.device)
    except TorchyardError as error:
        sys.exit(f"error: {error.message}")
    print(json.dumps(result))  # noqa: T201 stdout is data


def evaluate(state_path: Path, *, source: str | None = None, device: str = "auto") -> dict[str, Any]:
    """Returns the recipe's metrics on the validation split of `source`, and `samples`.

    The metrics of a classifier are `loss`, `accuracy` and, with more than five classes, `accuracy_top5`. Raises
    DataError and ConfigError.
    """
    state = _read(state_path)
    where = _device(device)
    torch.set_num_threads(state["threads"])
    config = _config(state_path, state)
    task = make_task(config, source=source or config.data.source, weights="none", device=where, metadata=state)
    try:
        task.model.load_state_dict(state["model"])
    except RuntimeError as error:
        raise ConfigError(f"the data does not fit the checkpoint's model: {error}") from error
    task.model.to(where)  # with fsdp it was built on the CPU
    batch_size = state.get("sampler", {}).get("batch_size")
    with Precision(config.training.precision, where).evaluation():
        evaluation = task.evaluate(None, on_batch=lambda: None, batch_size=batch_size)
    metrics = {key.removeprefix("val/"): value for key, value in evaluation.metrics.items()}
    return {**metrics, "samples": evaluation.samples}


def _read(path: Path) -> dict[str, Any]:
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a torn pickle can raise anything
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise DataError(f"{path} cannot be read as a checkpoint: {reason}") from error
    if not isinstance(state, dict) or not {"recipe", "config", "model", "threads"} <= state.keys():
        raise DataError(f"{path} is not a checkpoint of a recipe. Only its script can use the checkpoint of a script")
    return state


def _config(path: Path, state: dict[str, Any]) -> Recipe:
    recipe = REGISTRY.get(state["recipe"])
    if recipe is None:
        raise DataError(f"{path}: this version has no recipe {state['recipe']}")
    try:
        return recipe.config.model_validate(state["config"])
    except ValidationError as error:
        raise DataError(f"{path}: its configuration is not valid in this version") from error


def _device(name: str) -> torch.device:
    if name == "auto":
        return own_device(0)
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"--device {name} cannot be used: {str(error).splitlines()[0]}") from error


if __name__ == "__main__":
    main()
