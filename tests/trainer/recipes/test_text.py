"""The task of text classification: batches, loss, metrics and checkpoints."""

from dataclasses import replace
import io
import json
from pathlib import Path
import re
from typing import Any

import pytest
from safetensors.torch import save_file
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.approved import Approved
from tests.trainer.data.test_textfiles import file
from tests.trainer.ranks import on_ranks, results
from tests.trainer.shown import shown
from tests.trainer.weights.test_pretrained import HEAD, directory
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.errors import ConfigError, DataError
from torchyard.contract.recipes import TextClassification
from trainer.data.batch import Batch
from trainer.data.texts import Texts, load_texts
from trainer.data.tokens import tokenize, train_tokenizer
from trainer.recipes.text import TextClassifier, TokenData, make_task
from trainer.recipes.weighting import ClassLoss
from trainer.score import Accuracy
from trainer.task import Task
from trainer.weights.pretrained import load
from trainer.world import joined

CPU = torch.device("cpu")


def recipe(**sections: Any) -> TextClassification:
    data = {"source": "file:///there", "vocabulary": 300, "max_length": 16, **sections.pop("data", {})}
    return TextClassification.model_validate({"data": data, **sections})


def source(root: Path, *, texts: int = 40, classes: int = 2) -> Path:
    """Writes texts whose class depends on one of their words."""
    words = ["bad", "good", *(f"class{number}" for number in range(2, classes))]
    for number, word in enumerate(words):
        lines = [f"{'so ' * (line % 5)}{word} film{' ever' * (line % 3)}" for line in range(texts // classes)]
        file(root / f"{number}.txt", "\n".join(lines))
    return root


def task(
    source: Path, *, weights: str = "none", metadata: dict[str, Any] | None = None, **sections: Any
) -> TextClassifier:
    torch.manual_seed(0)
    return make_task(recipe(**sections), source=str(source), weights=weights, device=CPU, metadata=metadata)


def saved(state: Any) -> Any:
    """Returns the state after saving and loading it."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def published(classifier: TextClassifier, folder: Path) -> Path:
    """Writes the files of a checkpoint."""
    for name, content in classifier.files.items():
        assert isinstance(content, bytes)
        file(folder / name, content)
    save_file(classifier.model.state_dict(), folder / "model.safetensors")
    return folder


class Bag(nn.Module):
    """A small model in place of an encoder."""

    def __init__(self, vocabulary: int, classes: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.values = nn.Embedding.from_pretrained(torch.randn(vocabulary, classes, generator=generator))

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        return (self.values(inputs["input_ids"]) * inputs["attention_mask"][..., None]).sum(1)


def bagged(root: Path, *, classes: int = 2) -> TextClassifier:
    """Returns a task without transformers."""
    config = recipe(data={"val_fraction": 0.3}, training={"per_device_batch_size": 4})
    data = load_texts(root, config.data)
    tokenizer = train_tokenizer(data.train.texts, vocabulary=300)
    train, val = (
        tokenize(texts, tokenizer=tokenizer, max_length=16, padding=1, device=CPU) for texts in (data.train, data.val)
    )
    return TextClassifier(
        model=Bag(tokenizer.vocabulary, classes),
        config=config,
        tokenizer=tokenizer,
        classes=data.classes,
        data=TokenData(train=train, val=val, identity=data.identity, split_hash=data.split_hash),
        device=CPU,
        class_loss=ClassLoss(weights=None, smoothing=config.loss.label_smoothing, device=CPU),
        score=Accuracy(CPU),
    )


def evaluated(root: Path) -> tuple[dict[str, float], dict[str, Any], int]:
    with joined(recipe().distributed.collective_timeout()) as world:
        found = bagged(root).evaluate(world)
        return found.metrics, dict(found.files), found.samples


def test_each_text_is_measured_once_on_any_number_of_ranks(tmp_path: Path) -> None:
    alone = bagged(source(tmp_path, texts=60))
    found = alone.evaluate(None)
    (batch,) = alone.data.val.batches([torch.arange(len(alone.data.val))], device=CPU)
    logits = alone.model(batch.inputs)
    assert found.metrics == {
        "val/loss": pytest.approx(functional.cross_entropy(logits, batch.targets).item(), rel=1e-5),
        "val/accuracy": (logits.argmax(1) == batch.targets).sum().item() / 18,
    }
    assert set(json.loads(bytes(found.files["confusion.json"]))) == {"classes", "matrix"}  # pyright: ignore[reportArgumentType]
    for metrics, files, samples in results(on_ranks(2, evaluated, tmp_path)):
        assert metrics == pytest.approx(found.metrics, rel=1e-12)
        assert (files, samples) == (found.files, 18)


def test_the_surest_wrong_guesses_are_shown_as_the_model_reads_them(tmp_path: Path) -> None:
    task = bagged(source(tmp_path / "data", texts=60))
    found = task.evaluate(None)
    items = shown(RunDir(tmp_path / "run"), "misclassified", evaluation=found)
    mistakes = round((1 - found.metrics["val/accuracy"]) * 18)
    assert 0 < len(items) == min(mistakes, 16)
    said = [re.fullmatch(r"[01] instead of [01] \((0\.[5-9]\d|1\.00)\)", item.caption or "") for item in items]
    shares = [float(match[1]) for match in said if match is not None]
    assert len(shares) == len(items)
    assert shares == sorted(shares, reverse=True)
    for item in items:
        assert item.data is not None
        truth = {"0": "bad", "1": "good"}[str(item.caption).split()[3]]
        assert f"{truth} film" in item.data["text"]


def test_six_classes_have_the_same_metrics_as_two(tmp_path: Path) -> None:
    found = bagged(source(tmp_path, texts=70, classes=7), classes=7).evaluate(None)
    assert set(found.metrics) == {"val/loss", "val/accuracy"}


def test_a_tiny_encoder_learns_to_classify_texts(tmp_path: Path) -> None:
    classifier: Task = task(source(tmp_path), model={"dropout": 0.0})
    optimizer = torch.optim.AdamW(classifier.model.parameters(), lr=1e-3)
    plan = [torch.arange(36)] * 12
    for batch in classifier.training_batches(plan, epoch=1):
        classifier.loss(classifier.model(batch.inputs), batch.targets).backward()
        optimizer.step()
        optimizer.zero_grad()
    found = classifier.evaluate(None, on_batch=lambda: None)
    assert (found.metrics["val/accuracy"], found.samples) == (1.0, 4)
    assert classifier.model.training


def test_batches_follow_the_plan_and_draw_no_random_numbers(tmp_path: Path) -> None:
    classifier = task(source(tmp_path))
    plan = [torch.tensor([3, 20]), torch.tensor([0])]
    state = torch.get_rng_state()
    first, again = (list(classifier.training_batches(plan, epoch=epoch)) for epoch in (1, 2))
    assert [batch.targets.tolist() for batch in first] == [[0, 1], [0]]
    for batch, other in zip(first, again, strict=True):
        assert torch.equal(batch.inputs["input_ids"], other.inputs["input_ids"])
    classifier.example_inputs()
    classifier.largest_batch(3)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_largest_batch_has_the_longest_texts_and_the_example_a_median_one(tmp_path: Path) -> None:
    classifier = task(source(tmp_path))
    lengths = classifier.data.train.lengths
    largest = classifier.largest_batch(3)
    assert isinstance(largest, Batch)
    assert largest.inputs["attention_mask"].sum(1).tolist() == lengths.topk(3).values.tolist()
    assert largest.targets.shape == (3,)
    assert classifier.example_inputs()["input_ids"].shape == (1, lengths.median())


def test_label_smoothing_is_in_the_training_loss_only(tmp_path: Path) -> None:
    logits, targets = torch.tensor([[2.0, 0.0]]), torch.tensor([0])
    plain = functional.cross_entropy(logits, targets)
    smooth = replace(bagged(source(tmp_path)), class_loss=ClassLoss(weights=None, smoothing=0.2, device=CPU))
    other = functional.cross_entropy(logits, 1 - targets)
    assert smooth.loss(logits, targets).item() == pytest.approx(0.9 * plain.item() + 0.1 * other.item())
    assert smooth.evaluate(None).metrics == pytest.approx(bagged(tmp_path).evaluate(None).metrics)


def test_a_checkpoint_is_evaluated_with_its_own_tokenizer_and_model(tmp_path: Path) -> None:
    classifier = task(source(tmp_path), model={"dropout": 0.3})
    state = saved({**classifier.metadata, "model": classifier.model.state_dict()})
    file(tmp_path / "0.txt", "quite other words, much worse\nbad film\n" * 9)
    again = task(tmp_path, metadata=state, model={"dropout": 0.3}, weights="file:///gone")
    again.model.load_state_dict(state["model"])
    assert again.metadata == classifier.metadata
    assert again.identity.digest != classifier.identity.digest
    batch = classifier.largest_batch(4)
    assert torch.equal(again.model.eval()(batch.inputs), classifier.model.eval()(batch.inputs))


def test_other_classes_than_the_checkpoints_are_an_error(tmp_path: Path, approved: Approved) -> None:
    with pytest.raises(DataError) as raised:
        task(source(tmp_path), metadata={"classes": ["a", "b"]})
    assert str(raised.value) == approved("message", tmp_path=tmp_path)


def test_transformers_loads_the_folder_of_a_checkpoint(tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    classifier = task(source(tmp_path / "data"))
    folder = published(classifier, tmp_path / "checkpoint")
    model = AutoModelForSequenceClassification.from_pretrained(folder, local_files_only=True).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    texts = ["so good film", "bad <pad></s> film, ever ever"]
    theirs = tokenizer(texts, return_tensors="pt", padding=True)
    tokens = tokenize(
        Texts(texts, torch.tensor([1, 0])), tokenizer=classifier.tokenizer, max_length=64, padding=1, device=CPU
    )
    (batch,) = tokens.batches([torch.arange(2)], device=CPU)
    assert model.config.id2label == {0: "0", 1: "1"}
    assert torch.equal(theirs["input_ids"], batch.inputs["input_ids"])
    assert torch.allclose(model(**theirs).logits, classifier.model.eval()(batch.inputs), atol=1e-6)


def test_another_run_starts_from_a_checkpoints_folder(tmp_path: Path) -> None:
    first = task(source(tmp_path / "data"))
    folder = published(first, tmp_path / "checkpoint")
    second = task(tmp_path / "data", weights=folder.as_uri())
    assert second.tokenizer == first.tokenizer
    for name, tensor in second.model.state_dict().items():
        assert torch.equal(tensor, first.model.state_dict()[name])


@pytest.mark.parametrize("init", ["default", "xavier"])
def test_only_new_layers_are_initialized(tmp_path: Path, init: str) -> None:
    folder = directory(tmp_path / "model")
    classifier = task(source(tmp_path / "data"), weights=folder.as_uri(), model={"init": init})
    given = load(folder, classes=["0", "1"], dropout=0.1).model.state_dict()
    own = classifier.model.state_dict()
    assert {name for name in own if not torch.equal(own[name], given[name])} <= HEAD
    spread = own["classifier.dense.weight"].std().item()
    assert spread == pytest.approx(0.02 if init == "default" else (1 / 16) ** 0.5, rel=0.3)


def test_frozen_parameters_do_not_train(tmp_path: Path) -> None:
    classifier = task(source(tmp_path), model={"freeze": ["roberta.embeddings"]})
    frozen = [name for name, parameter in classifier.model.named_parameters() if not parameter.requires_grad]
    assert frozen == [name for name, _ in classifier.model.named_parameters() if "embeddings" in name]


def test_texts_longer_than_the_model_takes_are_refused(tmp_path: Path, approved: Approved) -> None:
    folder = directory(tmp_path / "model")
    with pytest.raises(ConfigError) as raised:
        task(source(tmp_path / "data"), weights=str(folder), data={"max_length": 39})
    assert str(raised.value) == approved("message", folder=folder)


def test_the_description_counts_texts_and_classes(tmp_path: Path, approved: Approved) -> None:
    classifier = bagged(source(tmp_path))
    assert classifier.description == approved("description")
    assert classifier.samples == 28
