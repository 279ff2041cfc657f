"""Checkpoints that real runs of the recipes have written."""

from pathlib import Path
from typing import Any

import numpy as np

from tests.trainer import language
from tests.trainer.bases import tiny_base
from tests.trainer.ranks import environment, job, on_ranks, results
from tests.trainer.runs import small_pictures
from tests.trainer.walls import walls
from torchyard.contract.recipes import MODULES, REGISTRY
from trainer.__main__ import main
from trainer.data.digits import read_digits

assert len(MODULES) == len(REGISTRY) == 4, "another recipe needs a run here"

PICTURES, MASKS, TEXTS, WORDS = REGISTRY


def run(folder: Path, trainer: str) -> Path:
    """Trains a small model of a recipe on data in `folder`. Returns its last `state.pt`."""
    data, config = {PICTURES: _pictures, MASKS: _walls, TEXTS: _texts, WORDS: _words}[trainer](folder)
    config["data"]["source"] = f"file://{data}"
    config["evaluation"] = {**config.get("evaluation", {}), "remeasure_best": False}
    made = job(folder / "run", config, trainer=trainer, checkpoint={"keep_last": 1})
    results(on_ranks(1, main, env=environment(made, data=data)))
    return max(made.checkpoints.glob("*/state.pt"))


def digits() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Returns all digits as floats of 0…1 (samples, 8, 8), and their labels."""
    pictures, labels = read_digits()
    return pictures.reshape(-1, 8, 8).astype(np.float32) / 16, labels


def _pictures(folder: Path) -> tuple[str, dict[str, Any]]:
    return small_pictures(folder), {"data": {}, "training": {"epochs": 1, "per_device_batch_size": 16}}


def _walls(folder: Path) -> tuple[str, dict[str, Any]]:
    (folder / "data").mkdir()
    data = {"image_size": 32, "workers": 0, "val_fraction": 0.4}
    return str(walls(folder / "data")), {
        "data": data,
        "training": {"epochs": 2, "per_device_batch_size": 3},
        "optimizer": {"lr": 0.02},
        "lr_scheduler": {"warmup_steps": 0},
    }


def _texts(folder: Path) -> tuple[str, dict[str, Any]]:
    (folder / "data").mkdir()
    for name, word in (("good", "fine"), ("bad", "dull")):
        lines = (f"a {word if number % 5 else 'strange'} film, number {number}\n" for number in range(60))
        (folder / "data" / f"{name}.txt").write_text("".join(lines))
    return str(folder / "data"), {
        "data": {"vocabulary": 300, "val_fraction": 0.2},
        "training": {"epochs": 1, "per_device_batch_size": 8},
    }


def _words(folder: Path) -> tuple[str, dict[str, Any]]:
    file = language.prompts(folder / "data.jsonl")
    return str(file), language.sections(tiny_base(folder / "base"), file)
