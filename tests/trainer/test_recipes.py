"""Every recipe trains with the techniques that the loop offers, and its checkpoint reproduces its metrics."""

from collections.abc import Callable
import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
import pytest

from tests.approved import Approved
from tests.trainer.ranks import environment, job, on_ranks, results
from tests.trainer.runs import load
from torchyard.contract.attempts.rundir import Env
from torchyard.contract.errors import ConfigError
from torchyard.run import Run
from trainer import __main__ as trainer
from trainer.evaluate import evaluate

TECHNIQUES: dict[str, Any] = {
    "training": {
        "epochs": 2,
        "per_device_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "precision": "bf16",
        "deterministic": True,
    },
    "optimizer": {"name": "rmsprop", "lr": 0.001, "clip_grad_norm": 1.0, "lookahead": {}, "lr_scaling": "linear"},
    "lr_scheduler": {"name": "step", "step_epochs": 1, "warmup_steps": 2},
    "ema": {"decay": 0.5, "ramp": 0},
    "early_stopping": {"patience": 5},
    "distributed": {"sync_batchnorm": True},
}


def pairs(root: Path) -> None:
    generator = np.random.default_rng(0)
    for folder in ("images", "masks"):
        (root / folder).mkdir(parents=True)
    for number in range(15):
        pixels = generator.integers(0, 256, (40, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(root / "images" / f"{number}.png")
        Image.fromarray(((pixels[..., 0] > 200) * 255).astype(np.uint8)).save(root / "masks" / f"{number}.png")


def texts(root: Path) -> None:
    root.mkdir()
    for name, word in (("good", "fine"), ("bad", "poor")):
        (root / f"{name}.txt").write_text("".join(f"a {word} story number {number}\n" for number in range(12)))


def train() -> bool:
    trainer.main()
    return True


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("recipe", "strategy", "make", "data"),
    [
        ("segmentation", "ddp", pairs, {"image_size": 32, "workers": 0}),
        ("text-classification", "fsdp", texts, {"vocabulary": 300, "val_fraction": 0.2}),
    ],
)
def test_a_recipe_trains_with_every_technique(
    tmp_path: Path, recipe: str, strategy: str, make: Callable[[Path], None], data: dict[str, Any]
) -> None:
    source = tmp_path / "data"
    make(source)
    distributed = {"strategy": strategy, "sync_batchnorm": strategy == "ddp"}
    config = {**TECHNIQUES, "data": {"source": f"file://{source}", **data}, "distributed": distributed}
    run = job(tmp_path / "run", config, trainer=recipe)
    results(on_ranks(2, train, env=environment(run, data=str(source))))
    saved = load(run.checkpoints / "epoch-0002")
    measured = evaluate(run.checkpoints / "epoch-0002" / "state.pt", source=str(source), device="cpu")
    assert measured["loss"] == pytest.approx(saved["metrics"]["val/loss"], rel=1e-6)
    resumed = job(tmp_path / "resumed", config, trainer=recipe)
    first = run.checkpoints / "epoch-0001"
    results(on_ranks(1, train, env=environment(resumed, data=str(source), resume_from=first)))
    assert load(resumed.checkpoints / "epoch-0002")["step"] == saved["step"]


def test_a_configuration_of_another_version_is_refused_in_our_words(tmp_path: Path, approved: Approved) -> None:
    config = tmp_path / "config.json"
    written = {"trainer": "image-classification", "config": {"training": {"epochs": "two", "epoks": 3}}}
    config.write_text(json.dumps(written))
    with pytest.raises(ConfigError) as caught:
        trainer.read_config(Run({Env.CONFIG: str(config)}))
    assert str(caught.value) == approved("message")
