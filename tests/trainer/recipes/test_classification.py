"""The task of image classification: batches, loss, metrics and initial weights."""

import itertools
import json
import math
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from PIL import Image
from pydantic import ValidationError
import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torchvision.models import ResNet18_Weights

from tests.approved import Approved
from tests.trainer.published import cache_as
from tests.trainer.ranks import on_ranks, recipe, results
from tests.trainer.runs import same, small_pictures
from tests.trainer.shown import pixels, shown
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.errors import ConfigError, DataError
from torchyard.contract.recipes import Normalization
from torchyard.models.pictures import PictureMetadata
from trainer.data.batch import Batch
from trainer.data.images import InMemory
from trainer.randomness import random_state, set_random_state
from trainer.recipes.classification import Classifier, make_task
from trainer.task import Task
from trainer.world import joined

CPU = torch.device("cpu")
ONE_BATCH = [torch.arange(8)]


def task(
    *, source: str = "digits", weights: str = "none", metadata: dict[str, Any] | None = None, **config: Any
) -> Classifier:
    torch.manual_seed(0)
    return make_task(recipe(**config), source=source, weights=weights, device=CPU, metadata=metadata)


def taken(classifier: Classifier, plan: list[Tensor], *, epoch: int = 1) -> list[Batch]:
    return list(classifier.training_batches(plan, epoch=epoch))


def evaluated(source: str, run: RunDir) -> tuple[dict[str, float], dict[str, Any], int]:
    with joined(recipe().distributed.collective_timeout()) as world:
        found = task(source=source, training={"per_device_batch_size": 8}).evaluate(world)
        if world.rank == 0:
            shown(run, "misclassified", evaluation=found)
        return found.metrics, dict(found.files), found.samples


def test_each_sample_is_measured_once_on_any_number_of_ranks(tmp_path: Path) -> None:
    source = small_pictures(tmp_path, val=67)
    alone = task(source=source, training={"per_device_batch_size": 8}).evaluate(None)
    run = RunDir(tmp_path / "ranks")
    for metrics, files, samples in results(on_ranks(2, evaluated, source, run)):
        assert metrics == pytest.approx(alone.metrics, rel=1e-12)
        assert metrics["val/accuracy"] == alone.metrics["val/accuracy"]
        assert files == alone.files
        assert samples == alone.samples == 67
    matrix = json.loads(bytes(alone.files["confusion.json"]))["matrix"]  # pyright: ignore[reportArgumentType]
    assert sum(map(sum, matrix)) == 67
    assert sum(matrix[index][index] for index in range(10)) == round(alone.metrics["val/accuracy"] * 67)
    (counts,) = shown(run, "confusion")
    assert counts.data is not None
    assert (counts.step, counts.data["matrix"]) == (7, matrix)
    of_one = shown(RunDir(tmp_path / "one"), "misclassified", evaluation=alone)
    assert [item.caption for item in shown(run, "misclassified")] == [item.caption for item in of_one]


def test_the_surest_wrong_guesses_are_shown_with_their_pictures(tmp_path: Path) -> None:
    classifier = task(source=small_pictures(tmp_path, val=67))
    ((pictures, labels),) = classifier.data.val.batches([torch.arange(67)], device=CPU, workers=0)
    with torch.no_grad():
        shares, guesses = classifier.model.eval()(classifier.normalizer(pictures)).softmax(1).max(1)
    wrong = [index for index in shares.argsort(descending=True).tolist() if guesses[index] != labels[index]][:16]
    run = RunDir(tmp_path / "run")
    items = shown(run, "misclassified", evaluation=classifier.evaluate(None))
    assert [item.caption for item in items] == [
        f"{guesses[index]} instead of {labels[index]} ({shares[index]:.2f})" for index in wrong
    ]
    for item, index in zip(items, wrong, strict=True):
        assert abs(pixels(run, item, "image") / 255 - picture_of(pictures[index])).max() < 0.01


def picture_of(picture: Tensor) -> NDArray[Any]:
    plain = picture if picture.is_floating_point() else picture / 255
    return plain[0].numpy() if len(plain) == 1 else plain.permute(1, 2, 0).numpy()


def test_augmentation_changes_training_pictures_alone_and_from_epoch_to_epoch() -> None:
    plain, augmented = (task(data={"augment": names}) for names in ([], ["hflip", "crop"]))
    wanted = [torch.tensor([4, 9]), torch.tensor([700, 2, 5])]
    for batch, own in zip(taken(augmented, wanted), taken(plain, wanted), strict=True):
        assert torch.equal(batch.targets, own.targets)
        assert not torch.equal(batch.inputs, own.inputs)
    first, second, again = (taken(augmented, wanted, epoch=epoch) for epoch in (1, 2, 1))
    assert same([list(batch) for batch in first], [list(batch) for batch in again])
    assert not torch.equal(first[0].inputs, second[0].inputs)
    resumed = taken(augmented, [torch.tensor([5, 700])])[0].inputs
    assert torch.allclose(resumed, first[1].inputs[[2, 0]], atol=1e-6)
    assert augmented.evaluate(None).metrics == plain.evaluate(None).metrics


def test_augmented_files_are_the_same_from_any_number_of_loaders(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for number in range(4):
            Image.effect_noise((16, 16), 90).save(tmp_path / name / f"{number}.png")
    data = {"augment": ["rotate90", "color"], "normalize": "none"}
    inline, loaded = (task(source=str(tmp_path), data={**data, "workers": workers}) for workers in (0, 2))
    plan = [torch.tensor([0, 3]), torch.tensor([5]), torch.tensor([2, 1])]
    assert same([list(batch) for batch in taken(inline, plan)], [list(batch) for batch in taken(loaded, plan)])


def test_mixup_draws_when_the_batch_is_taken() -> None:
    classifier = task(loss={"mixup": 0.4})
    batches = classifier.training_batches([torch.arange(6)] * 3, epoch=1)
    next(batches)
    numbers = random_state()
    second = next(batches)
    set_random_state(numbers)
    again = next(classifier.training_batches([torch.arange(6)], epoch=1))
    assert same(list(second), list(again))
    assert second.targets.shape == (6, 10)


@pytest.mark.parametrize("mixup", [0.0, 0.8])
def test_the_loss_is_the_mean_over_samples(mixup: float) -> None:
    own = task(loss={"mixup": mixup, "label_smoothing": 0.1})
    (batch,) = taken(own, ONE_BATCH)
    outputs = own.model.eval()(batch.inputs)
    whole = own.loss(outputs, batch.targets)
    parts = [own.loss(outputs[part], batch.targets[part]) * len(part) for part in torch.arange(8).split([1, 4, 3])]
    assert torch.stack(parts).sum().div(8).item() == pytest.approx(whole.item(), rel=1e-6)


def test_label_smoothing_applies_to_training_only() -> None:
    outputs, targets = torch.tensor([[2.0, 0.0, -1.0]]), torch.tensor([1])
    logs = functional.log_softmax(outputs, 1)[0]
    smooth = task(loss={"label_smoothing": 0.3})
    assert smooth.loss(outputs, targets).item() == pytest.approx(-(0.7 * logs[1] + 0.1 * logs.sum()).item())
    assert smooth.evaluate(None).metrics == task().evaluate(None).metrics


def test_pictures_have_the_configured_memory_format() -> None:
    classifier = task(model={"name": "resnet18"}, data={"image_size": 32}, training={"channels_last": True})
    for inputs in (taken(classifier, ONE_BATCH)[0].inputs, classifier.largest_batch(4).inputs):
        assert inputs.is_contiguous(memory_format=torch.channels_last)
    assert classifier.model.get_parameter("conv1.weight").is_contiguous(memory_format=torch.channels_last)


def test_a_blank_batch_has_the_shapes_of_a_real_one_and_draws_no_random_numbers() -> None:
    classifier = task(data={"augment": ["crop"]})
    numbers = torch.random.get_rng_state()
    blank, (real,) = classifier.largest_batch(8), taken(classifier, ONE_BATCH)
    assert (blank.inputs.shape, blank.inputs.dtype) == (real.inputs.shape, real.inputs.dtype)
    assert (blank.targets.shape, blank.targets.dtype) == (real.targets.shape, real.targets.dtype)
    assert math.isfinite(classifier.loss(classifier.model.eval()(blank.inputs), blank.targets).item())
    assert classifier.example_inputs().shape == real.inputs[:1].shape
    assert torch.equal(torch.random.get_rng_state(), numbers)


def test_the_task_describes_its_data(approved: Approved) -> None:
    one: Task = task()
    other: Task = task(data={"split_seed": 5})
    assert one.identity.digest == other.identity.digest
    assert one.split_hash != other.split_hash
    assert one.description == approved("description")
    assert (one.samples, dict(one.files)) == (1528, {})


@pytest.mark.parametrize("init", ["default", "xavier"])
def test_weights_of_a_file_are_kept_and_the_new_head_is_initialized(tmp_path: Path, init: str) -> None:
    from torchyard.models.vision import SmallCNN

    theirs = SmallCNN(channels=1, classes=4).state_dict()
    path = tmp_path / "theirs.pt"
    torch.save(theirs, path)
    own = task(weights=path.as_uri(), model={"init": init, "freeze": ["features"]})
    for name, value in own.model.state_dict().items():
        assert (name in {"classifier.3.weight", "classifier.3.bias"}) or torch.equal(value, theirs[name])
    bias = own.model.get_parameter("classifier.3.bias")
    assert bias.eq(0).all() == (init == "xavier")
    assert {name.split(".")[0] for name, value in own.model.named_parameters() if value.requires_grad} == {"classifier"}


def test_a_checkpoints_metadata_replaces_measuring_and_reading(tmp_path: Path, approved: Approved) -> None:
    metadata = task().metadata
    metadata["normalization"] = {"mean": [0.25], "std": [2.0]}
    again = task(metadata=metadata, weights=str(tmp_path / "absent.pt"), model={"init": "kaiming"})
    assert again.metadata == metadata
    assert again.normalization.mean == [0.25]
    with pytest.raises(DataError) as raised:
        task(metadata={**metadata, "classes": ["cat", "dog"]})
    assert str(raised.value) == approved("message")


@pytest.mark.parametrize(
    ("config", "error"),
    [
        ({"data": {"normalize": "imagenet"}}, ConfigError),
        ({"model": {"freeze": ["head"]}}, ConfigError),
        ({"weights": "DEFAULT"}, ConfigError),
        ({"weights": "/absent.pt"}, DataError),
    ],
)
def test_a_configuration_that_cannot_work_is_an_error(
    config: dict[str, Any], error: type[Exception], approved: Approved
) -> None:
    with pytest.raises(error) as raised:
        task(**config)
    assert str(raised.value) == approved.of_row("message")


def test_imagenets_normalization_needs_three_channels() -> None:
    own = task(model={"name": "resnet18"}, data={"image_size": 32, "normalize": "imagenet"})
    (batch,) = taken(own, [torch.arange(1)])
    (plain,) = taken(task(data={"image_size": 32, "normalize": "none"}), [torch.arange(1)])
    expected = (plain.inputs.expand(-1, 3, -1, -1) - torch.tensor([0.485, 0.456, 0.406]).reshape(1, 3, 1, 1)) / (
        torch.tensor([0.229, 0.224, 0.225]).reshape(1, 3, 1, 1)
    )
    assert torch.allclose(batch.inputs, expected, atol=1e-5)


def pictures(classifier: Classifier) -> Tensor:
    assert isinstance(classifier.data.val, InMemory)
    return classifier.data.val.pictures


def test_published_weights_bring_their_protocol_and_a_checkpoint_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    cache_as(monkeypatch, tmp_path / "home", ResNet18_Weights.DEFAULT, {"conv1.weight": torch.ones(64, 3, 7, 7)})
    sections: dict[str, Any] = {"model": {"name": "resnet18", "weights": "DEFAULT"}, "data": {"image_size": 14}}
    first = task(weights="DEFAULT", **sections)
    plain = task(model={"name": "resnet18"}, data={"image_size": 14})
    assert (first.metadata["crop_fraction"], plain.metadata["crop_fraction"]) == (0.875, 1.0)
    assert not torch.equal(pictures(first), pictures(plain))
    again = task(metadata=first.metadata, **sections)
    assert again.metadata["crop_fraction"] == 0.875
    assert torch.equal(pictures(first), pictures(again))


@pytest.mark.parametrize("size", [(8, (1 << 14) + 8), (4096, 4104)])
def test_pictures_of_which_no_checkpoint_could_be_loaded_are_refused(tmp_path: Path, size: tuple[int, int]) -> None:
    for split, label in itertools.product(("train", "val"), ("a", "b")):
        (tmp_path / split / label).mkdir(parents=True)
        Image.new("1", (size[1], size[0])).save(tmp_path / split / label / "1.png")
    with pytest.raises(ConfigError) as raised:
        task(source=str(tmp_path))
    assert str(raised.value) == (
        f"the pictures have {size[1]}×{size[0]} pixels, and a model takes at most 16,384 a side and 16,777,216 in all: "
        "set data.image_size"
    )
    with pytest.raises(ValidationError):
        PictureMetadata.model_validate(
            {
                "classes": ["a", "b"],
                "normalization": Normalization(mean=[0.0], std=[1.0]),
                "input": {"channels": 1, "height": size[0], "width": size[1]},
            }
        )
