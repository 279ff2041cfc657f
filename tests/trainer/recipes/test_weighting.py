"""Weights of classes: their formula, the loss that they weigh, and a run on several ranks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.approved import Approved
from tests.trainer.ranks import environment, job, on_ranks, results
from tests.trainer.runs import state
from torchyard.contract.errors import ConfigError, InvalidSpec
from torchyard.contract.recipes import ImageClassification
from torchyard.contract.spec.spec import parse_spec
from trainer.__main__ import main
from trainer.data.batch import Batch
from trainer.data.digits import read_digits
from trainer.data.mixup import mixup
from trainer.recipes import make_task
from trainer.recipes.weighting import ClassLoss, class_weights

CPU = torch.device("cpu")
WEIGHTS = [0.5, 2.0, 3.0]


def test_automatic_weights_make_classes_equal_and_the_mean_over_samples_one(approved: Approved) -> None:
    counts = [90, 9, 1, 0]
    weights = class_weights("auto", counts)
    assert weights is not None
    assert [weight * count for weight, count in zip(weights, counts, strict=True)] == pytest.approx([100 / 3] * 3 + [0])
    assert weights[3] == 1
    assert class_weights("none", counts) is None
    assert class_weights([1.0, 2.0], [5, 5]) == [1, 2]
    with pytest.raises(ConfigError) as raised:
        class_weights(WEIGHTS, counts)
    assert str(raised.value) == approved("message")


def expected(logits: Tensor, shares: Tensor) -> float:
    """Returns the mean over samples of weight × cross-entropy, for a share of each class in each sample."""
    return -(shares * torch.tensor(WEIGHTS) * logits.log_softmax(1)).sum(1).mean().item()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_each_share_of_a_target_has_the_weight_of_its_class(smoothing: float) -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(7, 3), torch.randint(3, (7,))
    loss = ClassLoss(weights=WEIGHTS, smoothing=smoothing, device=CPU)
    shares = functional.one_hot(labels, 3).float()
    assert loss(logits, labels).item() == pytest.approx(expected(logits, shares * (1 - smoothing) + smoothing / 3))
    _, blend = mixup(Batch(torch.randn(7, 2), labels), 1.0, classes=3)
    assert loss(logits, blend).item() == pytest.approx(expected(logits, blend * (1 - smoothing) + smoothing / 3))
    equal = ClassLoss(weights=[1.0] * 3, smoothing=smoothing, device=CPU)
    plain = ClassLoss(weights=None, smoothing=smoothing, device=CPU)
    assert equal(logits, labels).item() == pytest.approx(plain(logits, labels).item())
    assert loss(logits.bfloat16(), labels).dtype == torch.float32


def test_the_loss_does_not_depend_on_how_samples_are_batched() -> None:
    logits, labels = torch.randn(6, 3), torch.tensor([0, 0, 0, 1, 2, 2])
    loss = ClassLoss(weights=WEIGHTS, smoothing=0.0, device=CPU)
    parts = [loss(logits[part], labels[part]).item() for part in (slice(0, 2), slice(2, 6))]
    assert (2 * parts[0] + 4 * parts[1]) / 6 == pytest.approx(loss(logits, labels).item())


def rare(folder: Path) -> str:
    """Writes an `.npz` file of real digits, of which the nines are rare in the training split."""
    pictures, labels = read_digits()
    images = (pictures.reshape(-1, 8, 8) * 15).astype(np.uint8)
    kept = np.flatnonzero(labels[:400] != 9).tolist() + np.flatnonzero(labels[:400] == 9)[:4].tolist()
    path = folder / "rare.npz"
    np.savez(path, x_train=images[kept], y_train=labels[kept], x_test=images[400:500], y_test=labels[400:500])
    return str(path)


def settings(batch: int) -> dict[str, Any]:
    return {
        "model": {"name": "shufflenet_v2_x0_5"},  # no dropout, which differs between ranks
        "data": {"source": "digits", "image_size": 32},
        "loss": {"class_weights": "auto", "label_smoothing": 0.1},
        "training": {"max_steps": 1, "per_device_batch_size": batch, "deterministic": True},
        "distributed": {"sync_batchnorm": True},
        "logging": {"every_steps": 1},
    }


@pytest.mark.thorough
def test_two_ranks_train_as_one_and_val_loss_has_no_weights(tmp_path: Path) -> None:
    source, found = rare(tmp_path), list[dict[str, Any]]()
    for ranks, batch in ((1, 32), (2, 16)):
        run = job(tmp_path / str(ranks), settings(batch))
        results(on_ranks(ranks, main, env=environment(run, data=source)))
        (folder,) = run.checkpoints.iterdir()
        found.append(state(run, folder.name))
    for key, relative in (("train/loss", 1e-4), ("train/grad_norm", 1e-2)):
        assert found[0]["metrics"][key] == pytest.approx(found[1]["metrics"][key], rel=relative)
    weights = found[0]["class_weights"]
    assert weights == found[1]["class_weights"]
    assert weights[9] > 5 > max(weights[:9])
    task = make_task(ImageClassification.model_validate(settings(32)), source=source, device=CPU, metadata=found[0])
    assert task.metadata["class_weights"] == weights
    task.model.load_state_dict(found[0]["model"])
    plain = ImageClassification.model_validate({**settings(32), "loss": {}})
    other = make_task(plain, source=source, device=CPU, metadata={**found[0], "class_weights": None})
    other.model.load_state_dict(found[0]["model"])
    losses = [one.evaluate(None, on_batch=lambda: None).metrics["val/loss"] for one in (task, other)]
    assert losses[0] == losses[1] == pytest.approx(found[0]["metrics"]["val/loss"])


@pytest.mark.parametrize("weights", ["balanced", [1.0], [1.0, -1.0], 2.0, [1.0, float("inf")]])
def test_other_weights_are_refused(weights: Any) -> None:
    for trainer, data in (("image-classification", "digits"), ("text-classification", "file:///x")):
        with pytest.raises(InvalidSpec) as caught:
            parse_spec({"trainer": trainer, "config": {"data": {"source": data}, "loss": {"class_weights": weights}}})
        assert caught.value.errors[0].field.startswith("config.loss.class_weights")
