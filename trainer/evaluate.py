"""`python -P -m trainer.evaluate STATE_PT`: what a checkpoint's weights reach, in one plain process.

Prints one JSON line. The batches, and on a CPU the threads, are those of the training, so that the same machine
computes the same accuracy.
"""

import argparse
import json
from pathlib import Path
import pickle
import sys
from typing import Any

import torch

from torchyard.errors import ConfigError, DataError, TorchyardError
from torchyard.recipes import ImageClassification, Normalization
from trainer.recipes.classification import Classifier, make_classifier


def main() -> None:
    """Exits with 1 and one line on stderr where the checkpoint or the data cannot be used."""
    parser = argparse.ArgumentParser(prog="trainer.evaluate", description="Evaluate a checkpoint's weights.")
    parser.add_argument("state", type=Path, metavar="STATE_PT")
    parser.add_argument("--data", metavar="SOURCE", help="`digits` or a path; default: what it was trained on")
    parser.add_argument("--device", default="auto", help="`auto`, `cpu`, `cuda`, `cuda:1`, …")
    arguments = parser.parse_args()
    try:
        result = evaluate(arguments.state, source=arguments.data, device=arguments.device)
    except TorchyardError as error:
        sys.exit(f"error: {error.message}")
    print(json.dumps(result))  # noqa: T201 stdout is data


def evaluate(state_path: Path, *, source: str | None = None, device: str = "auto") -> dict[str, Any]:
    """`accuracy`, `loss` and `samples` over the validation split of `source`. Raises DataError and ConfigError."""
    state = _read(state_path)
    where = _device(device)
    torch.set_num_threads(state["threads"])
    classifier = _rebuild(state, source=source, device=where)
    tally = classifier.tally()
    metrics = tally.metrics()
    return {"accuracy": metrics["val/accuracy"], "loss": metrics["val/loss"], "samples": tally.samples}


def _read(path: Path) -> dict[str, Any]:
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise DataError(f"{path} cannot be read as a checkpoint: {str(error).splitlines()[0]}") from error
    if not isinstance(state, dict) or state.get("recipe") != "image-classification":
        raise DataError(f"{path} is no checkpoint of an image classifier")
    return state


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"--device {name} cannot be used: {str(error).splitlines()[0]}") from error


def _rebuild(state: dict[str, Any], *, source: str | None, device: torch.device) -> Classifier:
    config = ImageClassification.model_validate(state["config"])
    classifier = make_classifier(
        config,
        source=source or config.data.source,
        device=device,
        normalization=Normalization.model_validate(state["normalization"]),
        channels=state["input"]["channels"],
    )
    if classifier.data.classes != state["classes"]:
        raise DataError(f"the data's classes are {classifier.data.classes}, the checkpoint's {state['classes']}")
    try:
        classifier.model.load_state_dict(state["model"])
    except RuntimeError as error:
        raise ConfigError(f"the data's pictures do not fit the model: {error}") from error
    return classifier


if __name__ == "__main__":
    main()
