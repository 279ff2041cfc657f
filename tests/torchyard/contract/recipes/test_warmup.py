"""The warm-up of the learning rate: in steps or in epochs."""

from typing import Any

import pytest

from tests.approved import Approved
from tests.torchyard.contract.specs import RECIPES
from torchyard.contract.errors import InvalidSpec
from torchyard.contract.recipes import REGISTRY
from torchyard.contract.spec.spec import parse_spec

every_recipe = pytest.mark.parametrize("trainer", sorted(REGISTRY))


def spec(trainer: str, **scheduler: Any) -> dict[str, Any]:
    recipe = RECIPES[trainer]
    return recipe | {"config": recipe.get("config", {}) | {"lr_scheduler": scheduler}}


@every_recipe
def test_a_warm_up_in_epochs_replaces_the_default_steps(trainer: str) -> None:
    resolved = parse_spec(spec(trainer, warmup_epochs=0.5, step_epochs=2.4)).model_dump(mode="json")
    found = resolved["config"]["lr_scheduler"]
    assert (found["warmup_epochs"], found["warmup_steps"], found["step_epochs"]) == (0.5, 0, 2.4)
    assert parse_spec(resolved).model_dump(mode="json") == resolved


@every_recipe
def test_a_warm_up_in_both_is_refused(trainer: str, approved: Approved) -> None:
    with pytest.raises(InvalidSpec) as caught:
        parse_spec(spec(trainer, warmup_epochs=0.5, warmup_steps=3))
    (error,) = caught.value.errors
    assert error.field == "config.lr_scheduler"
    assert error.message == approved("message")
