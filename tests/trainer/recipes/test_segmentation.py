"""The recipe `segmentation`: measurements before training, batches, weights and evaluation."""

from collections.abc import Mapping
from datetime import timedelta
import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torchvision.models import ResNet34_Weights

from tests.approved import Approved
from tests.trainer.published import cache_as
from tests.trainer.ranks import environment, job, on_ranks, results
from tests.trainer.runs import load
from tests.trainer.shown import pixels, shown
from tests.trainer.walls import blob, pair, shifted, walls
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.errors import ConfigError, DataError, InvalidSpec
from torchyard.contract.recipes import Segmentation
from torchyard.contract.spec.spec import parse_spec
from trainer.__main__ import main
from trainer.evaluate import evaluate
from trainer.recipes.segmentation import Segmenter, make_task
from trainer.world import World, joined

CPU = torch.device("cpu")


def config(*, data: Mapping[str, Any] | None = None, **sections: Any) -> Segmentation:
    settings = {"source": "file:///x", "image_size": 32, "workers": 0, "normalize": "none", "augment": []}
    return Segmentation.model_validate({"data": {**settings, **(data or {})}, **sections})


def segmenter(
    root: Path, wanted: Segmentation | None = None, *, weights: str = "none", metadata: Mapping[str, Any] | None = None
) -> Segmenter:
    torch.manual_seed(0)
    return make_task(wanted or config(), source=str(root), weights=weights, device=CPU, metadata=metadata)


def test_the_positive_weight_balances_the_classes(tmp_path: Path) -> None:
    task = segmenter(walls(tmp_path))
    share = blob().mean()
    assert task.metadata["pos_weight"] == pytest.approx((1 - share) / share)
    _, masks = task.training_batches([torch.arange(6)], epoch=1).__next__()
    assert (masks * task.metadata["pos_weight"]).sum().item() == pytest.approx((1 - masks).sum().item())
    assert segmenter(tmp_path, config(loss={"pos_weight": 3.0})).metadata["pos_weight"] == 3


@pytest.mark.parametrize(("value", "which"), [(False, "no pixel"), (True, "every pixel")])
def test_masks_of_a_single_value_are_refused(tmp_path: Path, value: bool, which: str, approved: Approved) -> None:
    for stem in ("a", "b", "c"):
        _, mask = pair(tmp_path, stem)  # a picture with more than one value
        Image.fromarray(np.full(blob().shape, 255 * value, dtype=np.uint8)).save(mask)
    with pytest.raises(DataError) as raised:
        segmenter(tmp_path)
    assert str(raised.value) == approved("message", tmp_path=tmp_path, which=which)
    assert segmenter(tmp_path, config(loss={"pos_weight": 1.0})).metadata["pos_weight"] == 1


def test_normalization_is_set_by_the_configuration(tmp_path: Path) -> None:
    walls(tmp_path)
    task = segmenter(tmp_path, config(data={"normalize": "auto", "val_fraction": 0.4}))
    inputs = torch.cat([batch.inputs for batch in task.training_batches([torch.arange(5)], epoch=1)])
    assert inputs[:, :2].mean(dim=(0, 2, 3)).tolist() == pytest.approx([0, 0], abs=1e-4)
    assert inputs[:, :2].std(dim=(0, 2, 3), correction=0).tolist() == pytest.approx([1, 1], abs=1e-3)
    assert not inputs[:, 2].any()
    own = {"mean": [0.5], "std": [0.25]}
    scaled = segmenter(tmp_path, config(data={"normalize": own})).example_inputs()
    assert torch.equal(scaled, torch.full((1, 3, 32, 32), -2.0))
    imagenet = segmenter(tmp_path, config(data={"normalize": "imagenet"})).normalization
    assert imagenet.mean == [0.485, 0.456, 0.406]


def test_pictures_and_masks_are_augmented_together_by_epoch_and_sample_alone(tmp_path: Path) -> None:
    wanted = {"augment": ["hflip", "vflip", "rotate90"], "val_fraction": 0.01}
    task = segmenter(walls(tmp_path, count=12), config(data=wanted))

    def batches(epoch: int, *plan: list[int]) -> tuple[Tensor, Tensor]:
        taken = list(task.training_batches([torch.tensor(batch) for batch in plan], epoch=epoch))
        return torch.cat([batch.inputs for batch in taken]), torch.cat([batch.targets for batch in taken])

    order = list(range(11))
    pictures, masks = batches(1, order)
    assert torch.equal(pictures[:, :1] > 0, masks > 0)
    assert len(masks.flatten(1).unique(dim=0)) > 3
    for same, before in zip(batches(1, order[:4], order[4:]), (pictures, masks), strict=True):
        assert torch.equal(same, before)
    for same, before in zip(batches(1, order[5:]), (pictures[5:], masks[5:]), strict=True):
        assert torch.equal(same, before)
    assert not torch.equal(batches(2, order)[1], masks)
    assert list(task.training_batches([], epoch=1)) == []


def test_a_crop_keeps_pictures_and_masks_aligned(tmp_path: Path) -> None:
    for stem in ("a", "b", "c"):
        pair(tmp_path, stem, mask=blob(height=64, width=64))
    task = segmenter(tmp_path, config(data={"augment": ["crop"], "image_size": 64}))
    for epoch in range(4):
        (batch,) = task.training_batches([torch.arange(2)], epoch=epoch)
        agreed = (batch.inputs[:, :1] > 100 / 255) == (batch.targets > 0)
        assert agreed.float().mean() > 0.97
        assert batch.targets.unique().tolist() in ([0], [0, 1])


def test_the_loss_is_the_mean_over_pictures(tmp_path: Path) -> None:
    task = segmenter(shifted(tmp_path), config(loss={"dice": 1.0}))
    (batch,) = task.training_batches([torch.arange(6)], epoch=1)
    outputs = task.model(batch.inputs)
    first, others = (task.loss(outputs[part], batch.targets[part]).item() for part in (slice(1), slice(1, 6)))
    assert (first + 5 * others) / 6 == pytest.approx(task.loss(outputs, batch.targets).item())


def test_the_model_learns(tmp_path: Path) -> None:
    task = segmenter(shifted(tmp_path), config())
    optimizer = torch.optim.AdamW(task.model.parameters(), lr=0.01)
    before = task.evaluate(None).metrics
    for epoch in range(1, 13):
        for batch in task.training_batches(list(torch.arange(7).split(4)), epoch=epoch):
            optimizer.zero_grad()
            task.loss(task.model(batch.inputs), batch.targets).backward()
            optimizer.step()
    after = task.evaluate(None).metrics
    assert after["val/loss"] < before["val/loss"] / 2
    assert after["val/iou"] > max(0.5, before["val/iou"])


def test_channels_last_reaches_model_and_pictures(tmp_path: Path) -> None:
    task = segmenter(walls(tmp_path), config(training={"channels_last": True}))
    (batch,) = task.training_batches([torch.arange(2)], epoch=1)
    for inputs in (batch.inputs, task.example_inputs()):
        assert inputs.is_contiguous(memory_format=torch.channels_last)
    assert task.model(batch.inputs).shape == batch.targets.shape
    assert task.largest_batch(3).targets.shape == (3, 1, 32, 32)


def test_a_checkpoints_metadata_replaces_measuring(tmp_path: Path) -> None:
    first = segmenter(walls(tmp_path / "first"), config(data={"normalize": "auto"}))
    saved = io.BytesIO()
    torch.save(first.metadata, saved)
    saved.seek(0)
    metadata = torch.load(saved, weights_only=True)
    for stem in ("a", "b"):
        pair(tmp_path / "other", stem, mask=np.zeros((32, 32), dtype=bool))
    again = segmenter(
        tmp_path / "other", config(data={"normalize": "auto"}), weights="/no/such/file.pt", metadata=metadata
    )
    assert again.metadata == first.metadata
    assert again.split_hash != first.split_hash


def test_weights_of_a_file_fill_the_whole_model_or_its_encoder(tmp_path: Path, approved: Approved) -> None:
    walls(tmp_path / "data")
    donor = segmenter(tmp_path / "data").model
    with torch.no_grad():
        for parameter in donor.parameters():
            parameter.fill_(0.5)
    torch.save({"model": donor.state_dict()}, tmp_path / "whole.pt")
    encoder = {key.removeprefix("encoder."): value for key, value in donor.state_dict().items() if "encoder." in key}
    torch.save(encoder, tmp_path / "encoder.pt")
    wanted = config(model={"init": "kaiming"})

    def weights(file: str) -> dict[str, Tensor]:
        return segmenter(tmp_path / "data", wanted, weights=str(tmp_path / file)).model.state_dict()

    assert all((value == 0.5).all() for value in weights("whole.pt").values() if value.ndim == 4)
    filled = weights("encoder.pt")
    random = segmenter(tmp_path / "data").model.state_dict()
    for name, value in filled.items():
        if name.startswith("encoder.") and value.ndim == 4:
            assert (value == 0.5).all()
        elif value.ndim == 4:
            assert value.std() > 0
            assert not torch.equal(value, random[name])  # `init` is for what the file does not fill
    torch.save({"x": torch.ones(1)}, tmp_path / "other.pt")
    with pytest.raises(DataError) as raised:
        weights("other.pt")
    assert str(raised.value) == approved("message", tmp_path=tmp_path)


def test_weights_by_name_fill_the_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, approved: Approved) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    tensors = {"conv1.weight": torch.ones(64, 3, 7, 7), "fc.bias": torch.zeros(1000)}
    cache_as(monkeypatch, tmp_path / "home", ResNet34_Weights.DEFAULT, tensors)
    wanted = config(model={"name": "unet_resnet34", "weights": "DEFAULT", "freeze": ["encoder.conv1"]})
    model = segmenter(walls(tmp_path / "data", count=4), wanted, weights="DEFAULT").model
    parameters = dict(model.named_parameters())
    assert (parameters["encoder.conv1.weight"] == 1).all()
    frozen = [name for name, parameter in parameters.items() if not parameter.requires_grad]
    assert frozen == ["encoder.conv1.weight"]
    with pytest.raises(ConfigError) as raised:
        segmenter(tmp_path / "data", wanted, weights="NONSENSE")
    assert str(raised.value) == approved("message")


@pytest.mark.parametrize(
    "section",
    [
        {"model": {"weights": "DEFAULT"}},
        {"data": {"source": "file:///x", "normalize": {"mean": [0.5] * 2, "std": [0.5] * 2}}},
    ],
)
def test_a_configuration_that_cannot_work_is_refused_before_it_is_queued(
    section: dict[str, Any], approved: Approved
) -> None:
    spec = {"trainer": "segmentation", "config": {"data": {"source": "file:///x"}, **section}}
    with pytest.raises(InvalidSpec) as caught:
        parse_spec(spec)
    assert caught.value.errors[0].message == approved.of_row("message")


def measured(root: str, world: World | None) -> tuple[dict[str, float], int, bool, int]:
    calls = 0

    def count() -> None:
        nonlocal calls
        calls += 1

    wanted = config(data={"val_fraction": 0.65}, training={"per_device_batch_size": 2}, loss={"dice": 1.0})
    task = segmenter(Path(root), wanted)
    found = task.evaluate(world, on_batch=count)
    return found.metrics, found.samples, task.model.training, calls


def measured_on_a_rank(root: str) -> tuple[dict[str, float], int, bool, int]:
    with joined(timedelta(minutes=1)) as world:
        return measured(root, world)


@pytest.mark.thorough  # as the run on two ranks does below, which holds five pictures out
def test_ranks_with_uneven_batches_measure_the_same_as_one_process(tmp_path: Path) -> None:
    root = str(shifted(tmp_path, count=11))
    alone, samples, _, _ = measured(root, None)
    assert samples == 7  # batches of 2, 2, 2 and 1 samples: for three ranks 2, 1 and 1 of them
    for metrics, counted, training, calls in results(on_ranks(3, measured_on_a_rank, root)):
        assert metrics == pytest.approx(alone, rel=1e-12)
        assert (counted, training, calls) == (7, True, 2 + 2)


def test_metrics_are_those_of_the_models_probabilities(tmp_path: Path) -> None:
    task = segmenter(shifted(tmp_path), config(data={"val_fraction": 0.5}, evaluation={"threshold": 0.4}))
    metrics = task.evaluate(None).metrics
    ((pictures, masks),) = task.data.val.batches([torch.arange(4)], device=CPU, workers=0)
    with torch.no_grad():
        logits = task.model.eval()(pictures.float() / 255)
    predicted, truth = (logits.sigmoid() > 0.4).numpy(), masks.numpy() > 0
    loss = functional.binary_cross_entropy_with_logits(
        logits, masks.float(), pos_weight=torch.tensor(task.metadata["pos_weight"])
    ).item()
    assert metrics["val/loss"] == pytest.approx(loss, rel=1e-5)
    assert metrics["val/iou"] == (predicted & truth).sum() / (predicted | truth).sum()
    assert metrics["val/recall"] == (predicted & truth).sum() / truth.sum()


def test_overlays_show_the_same_pictures_with_the_models_current_prediction(tmp_path: Path) -> None:
    task = segmenter(shifted(tmp_path / "data", count=9), config(data={"val_fraction": 0.7}))
    names = [task.data.val.pairs[index].name for index in (0, 1, 3, 4)]
    run = RunDir(tmp_path / "run")
    for step, bias in enumerate((-100.0, 100.0)):
        with torch.no_grad():
            task.model.get_parameter("head.bias").fill_(bias)
        shown(run, "overlays", evaluation=task.evaluate(None), step=step)
    lines = shown(run, "overlays")
    assert [(line.step, line.number) for line in lines] == [(step, number) for step in (0, 1) for number in range(4)]
    assert [line.caption for line in lines] == 2 * names
    assert lines[0].classes == ["background", "foreground"]
    picture, truth = (
        np.asarray(Image.open(tmp_path / "data" / folder / f"{names[3]}.png")) for folder in ("images", "masks")
    )
    for line, value in zip(lines[3::4], (0, 1), strict=True):
        assert np.array_equal(pixels(run, line, "image"), picture)
        assert np.array_equal(pixels(run, line, "truth") > 0, truth > 0)
        assert (pixels(run, line, "predicted") == value).all()


def test_a_run_on_two_ranks_shows_overlays_once_and_saves_a_state_with_the_same_metrics(tmp_path: Path) -> None:
    source = shifted(tmp_path / "data", count=12)
    sections = config(data={"val_fraction": 0.4, "augment": ["hflip", "crop", "color"]}).model_dump(mode="json")
    sections["training"] |= {"epochs": 1, "per_device_batch_size": 2}
    sections["evaluation"] |= {"remeasure_best": False}
    run = job(tmp_path / "run", sections, trainer="segmentation")
    results(on_ranks(2, main, env=environment(run, data=str(source))))
    folder = run.checkpoints / "epoch-0001"
    metrics = {key: value for key, value in load(folder)["metrics"].items() if key.startswith("val/")}
    again = evaluate(folder / "state.pt", source=str(source), device="cpu")
    assert again.pop("samples") == 5
    assert {f"val/{key}": value for key, value in again.items()} == pytest.approx(metrics, rel=1e-9)
    assert [line.number for line in shown(run, "overlays")] == [0, 1, 2, 3]


def test_a_given_key_leaves_the_others_at_the_recipes_defaults() -> None:
    wanted = config(training={"epochs": 3}, optimizer={"name": "sgd"})
    assert (wanted.training.epochs, wanted.training.per_device_batch_size) == (3, 8)
    assert (config().training.epochs, config().optimizer.lr, wanted.optimizer.lr) == (20, 0.001, 0.001)
