"""What a job is told of the weights that it names: which parameters they do not fill."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.ranks import recipe
from tests.trainer.recipes.test_segmentation import config
from tests.trainer.recipes.test_text import source, task
from tests.trainer.walls import walls
from tests.trainer.weights.test_pretrained import directory
from torchyard.run import Run
from trainer.data.scanning import Scan
from trainer.recipes import make_task
from trainer.recipes.text import make_task as make_text_task

CPU = torch.device("cpu")


class Told(Run):
    """A run that keeps its messages."""

    def __init__(self) -> None:
        super().__init__({})
        self.messages: list[tuple[str, str]] = []

    def message(self, text: str, level: Any = "info") -> None:
        self.messages.append((level, text))


@pytest.fixture
def told() -> Told:
    return Told()


def digits(told: Told, file: Path) -> None:
    make_task(recipe(), source="digits", weights=str(file), device=CPU, scan=Scan(run=told))


@pytest.mark.parametrize("fitting", ["all but the head", "few"])
def test_a_job_is_warned_of_new_parameters_that_are_not_its_head(tmp_path: Path, told: Told, fitting: str) -> None:
    tensors = make_task(recipe(), source="digits", device=CPU).model.state_dict()
    left_out = "classifier.3." if fitting == "all but the head" else "features.0"
    torch.save({name: value for name, value in tensors.items() if not name.startswith(left_out)}, tmp_path / "w.pt")
    digits(told, tmp_path / "w.pt")
    ((level, text),) = told.messages
    assert level == ("info" if fitting == "all but the head" else "warning")
    new = "classifier.3.weight, classifier.3.bias" if level == "info" else "features.0.weight"
    assert text.endswith(f"parameters start from {tmp_path / 'w.pt'}; new: {new}")


def test_weights_of_an_encoder_leave_the_rest_of_a_unet_new(tmp_path: Path, told: Told) -> None:
    walls(tmp_path / "data")
    model = make_task(config(), source=str(tmp_path / "data"), device=CPU).model
    encoder = {
        name.removeprefix("encoder."): value
        for name, value in model.state_dict().items()
        if name.startswith("encoder.")
    }
    for dropped, level in ((0, "info"), (1, "warning")):
        torch.save(dict([*encoder.items()][dropped:]), tmp_path / "w.pt")
        make_task(
            config(), source=str(tmp_path / "data"), weights=str(tmp_path / "w.pt"), device=CPU, scan=Scan(run=told)
        )
        assert told.messages[-1][0] == level
        assert "new: " in told.messages[-1][1]


def test_a_job_is_told_that_the_head_of_an_encoder_of_texts_is_new(tmp_path: Path, told: Told) -> None:
    folder = directory(tmp_path / "model")
    known = task(source(tmp_path / "data"))
    make_text_task(
        known.config, source=str(tmp_path / "data"), weights=folder.as_uri(), device=CPU, scan=Scan(run=told)
    )
    ((level, text),) = told.messages
    assert level == "info"
    assert "new: classifier.dense.weight" in text
