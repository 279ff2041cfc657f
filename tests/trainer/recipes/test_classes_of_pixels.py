"""Segmentation with several classes: loss, metrics, weights, learning, resume and several ranks."""

from collections.abc import Mapping
from datetime import timedelta
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
import pytest
import torch
from torch import Tensor

from tests.approved import Approved
from tests.trainer.ranks import environment, job, on_ranks, results
from tests.trainer.runs import same, state
from tests.trainer.shapes import CLASSES, shapes
from tests.trainer.shown import pixels, shown
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.errors import DataError, InvalidSpec
from torchyard.contract.recipes import Segmentation
from torchyard.contract.spec.spec import parse_spec
from trainer.__main__ import main
from trainer.data.masks import IGNORED
from trainer.evaluate import evaluate
from trainer.recipes.pixelclasses import ClassPixelLoss, ClassPixelTally
from trainer.recipes.segmentation import Segmenter, make_task
from trainer.score import ClassIou
from trainer.world import World, joined

CPU = torch.device("cpu")
RANDOM = np.random.default_rng(0)
LOGITS: NDArray[Any] = RANDOM.normal(size=(5, 3, 8, 6)) * 3
MASKS: NDArray[Any] = RANDOM.choice([0, 1, 2, IGNORED], size=(5, 1, 8, 6), p=[0.5, 0.2, 0.2, 0.1]).astype(np.uint8)
NAMES = ["background", "square", "disc"]


def config(*, data: Mapping[str, Any] | None = None, **sections: Any) -> Segmentation:
    settings = {"source": "file:///x", "image_size": 32, "workers": 0, "augment": [], "classes": CLASSES}
    return Segmentation.model_validate({"data": {**settings, **(data or {})}, **sections})


def segmenter(root: Path, wanted: Segmentation | None = None, **options: Any) -> Segmenter:
    torch.manual_seed(0)
    return make_task(wanted or config(), source=str(root), device=CPU, **options)


def tensors() -> tuple[Tensor, Tensor]:
    return torch.from_numpy(LOGITS), torch.from_numpy(MASKS)


def chances() -> NDArray[Any]:
    powers = np.exp(LOGITS)
    return powers / powers.sum(1, keepdims=True)


@pytest.mark.parametrize("weights", [None, [0.5, 2.0, 4.0]])
@pytest.mark.parametrize("dice", [0.0, 0.7])
def test_the_loss_is_that_of_each_pictures_counted_pixels(weights: list[float] | None, dice: float) -> None:
    truth, counted = np.arange(3)[:, None, None] == MASKS, MASKS != IGNORED
    factors = np.array(weights or [1, 1, 1])[:, None, None]
    entropy = -(factors * truth * np.log(chances())).sum((1, 2, 3)) / counted.sum((1, 2, 3))
    common, sizes = (chances() * truth).sum((2, 3)), (chances() * counted + truth).sum((2, 3))
    expected = entropy + dice * (1 - (2 * common + 1) / (sizes + 1)).mean(1)
    loss = ClassPixelLoss(weights=weights, dice=dice, device=CPU)
    assert loss(*tensors()).numpy() == pytest.approx(expected)
    logits, masks = tensors()
    assert loss(logits.bfloat16(), masks).dtype == torch.float32


def test_pixels_that_are_ignored_change_neither_loss_nor_gradient() -> None:
    loss, (logits, masks) = ClassPixelLoss(weights=None, dice=1.0, device=CPU), tensors()
    changed = torch.where(masks == IGNORED, logits + 50 * torch.randn_like(logits), logits).requires_grad_()
    found = loss(changed, masks)
    assert torch.allclose(found, loss(logits, masks))
    (gradient,) = torch.autograd.grad(found.sum(), changed)
    assert not (gradient * (masks == IGNORED)).any()
    nothing = torch.full_like(masks, IGNORED)
    assert torch.equal(ClassPixelLoss(weights=None, dice=0.0, device=CPU)(logits, nothing), torch.zeros(5).double())


def tallied(masks: Tensor, *parts: slice) -> ClassPixelTally:
    loss = ClassPixelLoss(weights=None, dice=0.0, device=CPU)
    tally = ClassPixelTally(loss, classes=NAMES, device=CPU)
    for part in parts or (slice(None),):
        tally.add(tensors()[0][part], masks[part])
    return tally


def test_metrics_are_those_of_all_counted_pixels_against_numpy() -> None:
    tally = tallied(tensors()[1], slice(0, 1), slice(1, 5))
    counted = MASKS[:, 0] != IGNORED
    truth, predicted = MASKS[:, 0][counted], LOGITS.argmax(1)[counted]
    right = np.array([((truth == number) & (predicted == number)).sum() for number in range(3)])
    either = np.array([((truth == number) | (predicted == number)).sum() for number in range(3)])
    assert tally.metrics() == pytest.approx(
        {
            "val/loss": ClassPixelLoss(weights=None, dice=0.0, device=CPU)(*tensors()).mean().item(),
            "val/iou": (right / either).mean(),
            "val/dice": (2 * right / (either + right)).mean(),
            "val/accuracy": (truth == predicted).mean(),
        }
    )
    found = json.loads(tally.files()["confusion.json"])
    assert (found["classes"], found["iou"]) == (NAMES, pytest.approx((right / either).tolist()))
    assert sum(found["matrix"][1]) == (truth == 1).sum()
    assert sum(row[1] for row in found["matrix"]) == (predicted == 1).sum()


def test_only_classes_that_occur_count_and_without_a_pixel_all_ratios_are_one() -> None:
    loss = ClassPixelLoss(weights=None, dice=0.0, device=CPU)
    tally = ClassPixelTally(loss, classes=NAMES, device=CPU)
    logits = torch.tensor([5.0, 0.0, 0.0])[:, None, None].expand(1, 3, 4, 4)
    tally.add(logits, torch.zeros(1, 1, 4, 4, dtype=torch.uint8))
    assert tally.metrics()["val/iou"] == 1
    assert json.loads(tally.files()["confusion.json"])["iou"] == [1, None, None]
    nothing = tallied(torch.full_like(tensors()[1], IGNORED)).metrics()
    assert list(nothing.values()) == [0, 1, 1, 1]


def test_the_score_in_training_is_of_all_classes_but_the_background() -> None:
    score, counted = ClassIou(CPU), MASKS[:, 0] != IGNORED
    score.add(*tensors())
    score.end_step(skipped=torch.zeros(()))
    truth, predicted = MASKS[:, 0][counted], LOGITS.argmax(1)[counted]
    right = ((truth == predicted) & (truth > 0)).sum()
    assert score.take().tolist() == [right, (truth > 0).sum() + (predicted > 0).sum() - right]


def trained(task: Segmenter, *, epochs: int = 10) -> None:
    optimizer = torch.optim.AdamW(task.model.parameters(), lr=0.01)
    for epoch in range(1, epochs + 1):
        for batch in task.training_batches(list(torch.arange(task.samples).split(5)), epoch=epoch):
            optimizer.zero_grad()
            task.loss(task.model(batch.inputs), batch.targets).backward()
            optimizer.step()


@pytest.mark.parametrize("loss", [pytest.param({}, marks=pytest.mark.thorough), {"class_weights": "auto", "dice": 1.0}])
def test_shapes_are_told_apart_after_a_few_steps(tmp_path: Path, loss: dict[str, Any]) -> None:
    task = segmenter(shapes(tmp_path, ignored=True, count=16), config(loss=loss, data={"augment": ["hflip"]}))
    trained(task)
    found = task.evaluate(None)
    assert found.metrics["val/iou"] > 0.8
    assert set(found.files) == {"confusion.json"}
    run = RunDir(tmp_path / "run")
    first, *_ = shown(run, "overlays", evaluation=found)
    assert (first.classes, first.caption) == (CLASSES, task.data.val.pairs[0].name)
    assert {0, 1, 2, 3} >= {*np.unique(pixels(run, first, "predicted"))} > {0}
    assert IGNORED in pixels(run, first, "truth")
    (matrix,) = shown(run, "confusion")
    assert matrix.data is not None
    whole = json.loads(bytes(found.files["confusion.json"]))  # pyright: ignore[reportArgumentType]
    assert (matrix.step, matrix.data["classes"], matrix.data["matrix"]) == (7, CLASSES, whole["matrix"])


def test_automatic_weights_balance_the_classes_and_stay_with_the_checkpoint(tmp_path: Path) -> None:
    wanted = config(loss={"class_weights": "auto"})
    task = segmenter(shapes(tmp_path / "data"), wanted)
    counts = np.array(task.data.train.count_classes(workers=0))
    weights = task.metadata["class_weights"]
    assert weights == pytest.approx(counts.sum() / (4 * counts))
    assert (weights * counts).sum() / counts.sum() == pytest.approx(1)
    assert task.metadata | {"normalization": None, "input": None} == {
        "classes": CLASSES,
        "outputs": 4,
        "palette": [[0, 0, 0], [128, 0, 0], [0, 128, 0], [128, 128, 0]],
        "class_weights": weights,
        "normalization": None,
        "input": None,
    }
    again = segmenter(shapes(tmp_path / "other", count=4), wanted, metadata=task.metadata)
    assert again.metadata == task.metadata
    given = segmenter(tmp_path / "data", config(loss={"class_weights": [1.0, 2.0, 3.0, 4.0]}))
    assert given.metadata["class_weights"] == [1, 2, 3, 4]


def test_masks_of_one_class_alone_have_no_automatic_weights(tmp_path: Path, approved: Approved) -> None:
    shapes(tmp_path)
    for mask in (tmp_path / "masks").iterdir():
        Image.new("L", (32, 32)).save(mask)
    with pytest.raises(DataError) as raised:
        segmenter(tmp_path, config(loss={"class_weights": "auto"}))
    assert str(raised.value) == approved("message", tmp_path=tmp_path)


def measured(root: str, world: World | None) -> dict[str, float]:
    wanted = config(data={"val_fraction": 0.5}, training={"per_device_batch_size": 2}, loss={"dice": 1.0})
    return segmenter(Path(root), wanted).evaluate(world).metrics


def measured_on_a_rank(root: str) -> dict[str, float]:
    with joined(timedelta(minutes=1)) as world:
        return measured(root, world)


def test_ranks_measure_the_same_as_one_process(tmp_path: Path) -> None:
    root = str(shapes(tmp_path, ignored=True, count=10))
    alone = measured(root, None)
    assert results(on_ranks(2, measured_on_a_rank, root)) == [pytest.approx(alone, rel=1e-12)] * 2


def settings(**sections: dict[str, Any]) -> dict[str, Any]:
    found = config(loss={"class_weights": "auto"}, data={"augment": ["hflip", "crop"], "val_fraction": 0.34})
    wanted = found.model_dump(mode="json")
    wanted["training"] |= {"per_device_batch_size": 4, "epochs": 1, "deterministic": True}
    return wanted | {name: wanted[name] | section for name, section in sections.items()}


@pytest.mark.thorough
def test_a_resumed_run_ends_bit_equal_and_its_checkpoint_measures_the_same(tmp_path: Path) -> None:
    source = str(shapes(tmp_path / "data", ignored=True))
    runs = [job(tmp_path / name, settings(training={"epochs": 2}), trainer="segmentation") for name in ("one", "two")]
    results(on_ranks(1, main, env=environment(runs[0], data=source)))
    before, after = (runs[0].checkpoints / f"epoch-000{number}" for number in (1, 2))
    results(on_ranks(1, main, env=environment(runs[1], data=source, resume_from=before)))
    whole, resumed = (state(run, "epoch-0002") for run in runs)
    assert same(resumed["model"], whole["model"])
    assert 0 < whole["metrics"]["train/iou"] == resumed["metrics"]["train/iou"]
    found = evaluate(after / "state.pt", source=source, device="cpu")
    measured = {key: value for key, value in whole["metrics"].items() if key.startswith("val/")}
    assert {f"val/{key}": value for key, value in found.items() if key != "samples"} == pytest.approx(measured)
    assert (after / "confusion.json").exists()


@pytest.mark.thorough
def test_two_ranks_train_as_one(tmp_path: Path) -> None:
    source, found = str(shapes(tmp_path / "data", ignored=True)), list[dict[str, Any]]()
    for ranks, batch in ((1, 4), (2, 2)):
        wanted = settings(training={"per_device_batch_size": batch}, distributed={"sync_batchnorm": True})
        run = job(tmp_path / str(ranks), wanted, trainer="segmentation")
        results(on_ranks(ranks, main, env=environment(run, data=source)))
        found.append(state(run, "epoch-0001")["metrics"])
    for key, relative in (("train/loss", 1e-4), ("train/grad_norm", 1e-2)):
        assert found[0][key] == pytest.approx(found[1][key], rel=relative)


@pytest.mark.parametrize(
    "sections",
    [
        {"loss": {"name": "cross_entropy"}},
        {"loss": {"class_weights": "auto"}},
        {"data": {"classes": CLASSES}, "loss": {"name": "bce"}},
        {"data": {"classes": CLASSES}, "loss": {"pos_weight": 2.0}},
        {"data": {"classes": CLASSES}, "loss": {"class_weights": [1.0, 2.0]}},
    ],
)
def test_a_loss_that_does_not_fit_the_classes_is_refused(sections: dict[str, Any], approved: Approved) -> None:
    data = {"source": "file:///x", **sections.get("data", {})}
    with pytest.raises(InvalidSpec) as caught:
        parse_spec({"trainer": "segmentation", "config": {**sections, "data": data}})
    assert caught.value.errors[0].message == approved.of_row("message")


@pytest.mark.parametrize(("classes", "monitor"), [(None, "val/accuracy"), (CLASSES, "val/recall")])
def test_a_metric_that_is_not_measured_is_not_monitored(
    classes: list[str] | None, monitor: str, approved: Approved
) -> None:
    spec = {
        "trainer": "segmentation",
        "config": {"data": {"source": "file:///x", "classes": classes}},
        "checkpoint": {"monitor": monitor, "mode": "max"},
    }
    with pytest.raises(InvalidSpec) as caught:
        parse_spec(spec)
    assert caught.value.errors[0].message == approved.of_row("message")
    assert monitor not in caught.value.errors[0].message
