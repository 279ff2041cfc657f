"""Which key of a job spec a short one names."""

import pytest
import typer

from tests.approved import Approved
from torchyard.cli.sweeps.keys import whole_key

RECIPE, SCRIPT = "image-classification", "script"


@pytest.mark.parametrize(
    ("key", "trainer", "whole"),
    [
        ("lr", RECIPE, "config.optimizer.lr"),
        ("seed", RECIPE, "config.training.seed"),
        ("decay", RECIPE, "config.ema.decay"),
        ("model.name", RECIPE, "config.model.name"),
        ("optimizer", RECIPE, "config.optimizer"),
        ("config.optimizer.lr", RECIPE, "config.optimizer.lr"),
        ("config.typo", RECIPE, "config.typo"),
        ("priority", RECIPE, "priority"),
        ("env.NAME", RECIPE, "env.NAME"),
        ("lr", "of-another-version", "lr"),
        ("lr", SCRIPT, "args.lr"),
        ("--lr", SCRIPT, "args.lr"),
        ("weight-decay", SCRIPT, "args.weight-decay"),
        ("args.devices", SCRIPT, "args.devices"),
        ("devices", SCRIPT, "resources.devices_per_node"),
        ("--devices", SCRIPT, "args.devices"),
        ("gpu", SCRIPT, "resources.gpu"),
        ("qos", SCRIPT, "slurm.qos"),
        ("priority", SCRIPT, "priority"),
        ("env.NAME", SCRIPT, "env.NAME"),
    ],
)
def test_a_short_key_is_completed(key: str, trainer: str, whole: str) -> None:
    assert whole_key(key, trainer=trainer) == whole


@pytest.mark.parametrize(
    "key",
    [
        "patience",
        "weight_deacy",
        "qqqq",
        "",
    ],
)
def test_a_key_that_is_there_twice_or_not_at_all_is_refused(key: str, approved: Approved) -> None:
    with pytest.raises(typer.BadParameter) as raised:
        whole_key(key, trainer=RECIPE)
    assert str(raised.value) == approved.of_row("message")
