"""A batch of one, of which a batch norm has one value a channel, is refused before the start."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.approved import Approved
from tests.trainer.data.test_pictures import folders
from tests.trainer.ranks import recipe
from tests.trainer.walls import walls
from torchyard.contract.errors import ConfigError
from torchyard.contract.recipes import Segmentation
from torchyard.models import vision
from trainer.recipes import make_task
from trainer.recipes.batchofone import single_valued

CPU = torch.device("cpu")


def classifier(source: Path, **sections: Any) -> Any:
    data = {"image_size": 32, "cache": "none"}
    wanted = recipe(**{"model": {"name": "resnet18"}, "data": data, **sections})
    return make_task(wanted, source=str(source), device=CPU)


def test_a_batch_of_one_is_refused_where_a_batch_norm_has_one_value_of_it(tmp_path: Path, approved: Approved) -> None:
    one = {"per_device_batch_size": 1}
    with pytest.raises(ConfigError) as caught:
        classifier(folders(tmp_path), training=one)
    assert str(caught.value) == approved("message")
    classifier(tmp_path, training={"per_device_batch_size": 2})
    classifier(tmp_path, training=one, data={"image_size": 64, "cache": "none"})
    classifier(tmp_path, training=one, model={"name": "small_cnn"})


def test_a_batch_of_one_is_refused_for_masks_too(tmp_path: Path, approved: Approved) -> None:
    sections: dict[str, Any] = {
        "model": {"name": "unet_resnet34"},
        "data": {"source": tmp_path.as_uri(), "image_size": 32, "cache": "none"},
        "training": {"per_device_batch_size": 1},
    }
    with pytest.raises(ConfigError) as caught:
        make_task(Segmentation.model_validate(sections), source=str(walls(tmp_path)), device=CPU)
    assert str(caught.value) == approved("message")


def test_a_look_for_batch_norms_changes_nothing() -> None:
    """Where it finds one, torch refuses a batch of one."""
    model = vision.build("resnet18", channels=3, height=32, width=32, classes=2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert single_valued(model, (3, 32, 32)) is not None
    assert single_valued(model, (3, 64, 64)) is None
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        model(torch.zeros(1, 3, 32, 32))
    model(torch.zeros(1, 3, 64, 64))
    assert single_valued(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), (3, 8, 8)) is None
