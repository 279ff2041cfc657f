"""Text encoders from a directory: what is loaded, and the errors for broken directories."""

from collections.abc import Callable
import hashlib
import json
from pathlib import Path
import socket
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
import torch
from torch import Tensor, nn

from tests.approved import Approved
from tests.torchyard.models.test_text import BATCH, CLASSES
from torchyard.contract.errors import DataError
from torchyard.models import text
from trainer.data.tokens import train_tokenizer
from trainer.weights import digests
from trainer.weights.pretrained import load

SMALL = {
    "vocab_size": 320,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 40,
}
HEAD = {f"classifier.{layer}.{kind}" for layer in ("dense", "out_proj") for kind in ("weight", "bias")}


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("something looked for the network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


def directory(root: Path, kind: str = "roberta", *, head: bool = True, **changes: Any) -> Path:
    """Writes what transformers saves, with random weights: the whole classifier, or only its encoder."""
    from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, TokenizersBackend

    torch.manual_seed(1)
    auto = AutoModelForSequenceClassification if head else AutoModel
    auto.from_config(AutoConfig.for_model(kind, **{**SMALL, **changes})).save_pretrained(root)
    files = train_tokenizer(["some words", "some other words"] * 9, vocabulary=300)
    TokenizersBackend(
        tokenizer_object=Tokenizer.from_str(files.content), model_max_length=64, **files.roles
    ).save_pretrained(root)
    return root


@pytest.mark.parametrize(
    "kind",
    ["bert", *(pytest.param(kind, marks=pytest.mark.thorough) for kind in ("camembert", "roberta", "xlm-roberta"))],
)
def test_every_parameter_gets_a_gradient(tmp_path: Path, kind: str) -> None:
    model = load(directory(tmp_path, kind), classes=CLASSES, dropout=0.1).model.train()
    model(BATCH).sum().backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


def test_dropout_is_set_by_the_configuration(tmp_path: Path) -> None:
    model = load(directory(tmp_path), classes=CLASSES, dropout=0.3).model
    assert {module.p for module in model.modules() if isinstance(module, nn.Dropout)} == {0.3}


def test_a_directory_gives_weights_and_tokenizer_and_the_head_is_new(tmp_path: Path) -> None:
    loaded = load(directory(tmp_path), classes=["a", "b", "c"], dropout=0.1)
    saved = load_file(tmp_path / "model.safetensors")
    own = loaded.model.state_dict()
    assert loaded.new == HEAD
    assert all(torch.equal(own[name], saved[name]) for name in own if name not in HEAD)
    assert loaded.model(BATCH).shape == (2, 3)
    assert (text.padding(loaded.model), loaded.longest) == (1, 38)
    assert Tokenizer.from_str(loaded.tokenizer.content).encode("other words").ids[0] == 0
    assert loaded.tokenizer.roles["pad_token"] == "<pad>"


def test_a_head_is_kept_only_for_the_same_classes(tmp_path: Path) -> None:
    labels: dict[str, Any] = {"id2label": {0: "neg", 1: "pos"}, "label2id": {"neg": 0, "pos": 1}}
    saved = load_file(directory(tmp_path, **labels) / "model.safetensors")["classifier.out_proj.weight"]

    def head(classes: list[str]) -> tuple[Tensor, frozenset[str]]:
        loaded = load(tmp_path, classes=classes, dropout=0.1)
        return loaded.model.state_dict()["classifier.out_proj.weight"], loaded.new

    same, other = head(["neg", "pos"]), head(["pos", "neg"])
    assert torch.equal(same[0], saved)
    assert same[1] == frozenset()
    assert not torch.equal(other[0], saved)
    assert other[0].std() == pytest.approx(0.02, rel=0.5)
    assert other[1] == HEAD


def test_an_encoder_without_a_head_is_loaded(tmp_path: Path) -> None:
    loaded = load(directory(tmp_path, head=False), classes=CLASSES, dropout=0.1)
    saved = load_file(tmp_path / "model.safetensors")
    assert loaded.new == HEAD
    assert torch.equal(
        loaded.model.state_dict()["roberta.embeddings.word_embeddings.weight"],
        saved["embeddings.word_embeddings.weight"],
    )


def snapshot(root: Path) -> Path:
    """Writes a directory as the cache of Hugging Face has it: links to blobs, named by their sha256 or Git's digest."""
    source, folder, blobs = (
        directory(root / "source"),
        root / "models--x" / "snapshots" / "main",
        root / "models--x/blobs",
    )
    for new in (folder, blobs):
        new.mkdir(parents=True)
    for file in source.iterdir():
        content = file.read_bytes()
        git = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False)
        name = (hashlib.sha256(content) if file.suffix == ".safetensors" else git).hexdigest()
        (blobs / name).write_bytes(content)
        (folder / file.name).symlink_to(Path("../../blobs", name))
    return folder


def test_a_snapshot_of_a_cache_is_loaded_as_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = snapshot(tmp_path)
    weights = load_file(tmp_path / "source" / "model.safetensors")
    check = digests._copy_blob  # pyright: ignore[reportPrivateUsage]

    def check_and_change(blob: Path, target: Path) -> None:
        check(blob, target)
        blob.write_bytes(b"poison")

    monkeypatch.setattr(digests, "_copy_blob", check_and_change)
    own = load(folder, classes=CLASSES, dropout=0.1).model.state_dict()
    assert all(torch.equal(own[name], weights[name]) for name in own if name not in HEAD)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_snapshot_that_another_job_changed_is_refused(tmp_path: Path, name: str, approved: Approved) -> None:
    folder = snapshot(tmp_path)
    blob = (folder / name).resolve()
    blob.write_bytes(blob.read_bytes() + b" ")
    with pytest.raises(DataError) as raised:
        load(folder, classes=CLASSES, dropout=0.1)
    assert str(raised.value) == approved("message", folder=folder, blob=blob)


def _no_config(root: Path) -> None:
    (root / "config.json").unlink()


def _torn_config(root: Path) -> None:
    (root / "config.json").write_text('{"model_type": "rob')


def _other_model(root: Path) -> None:
    (root / "config.json").write_text('{"model_type": "gpt2"}')


def _own_code(root: Path) -> None:
    config = {"model_type": "mine", "auto_map": {"AutoConfig": "code.Config"}}
    (root / "config.json").write_text(json.dumps(config))
    (root / "code.py").write_text("raise SystemExit('this must not run')")


def _no_weights(root: Path) -> None:
    (root / "model.safetensors").unlink()


def _torn_weights(root: Path) -> None:
    content = (root / "model.safetensors").read_bytes()
    (root / "model.safetensors").write_bytes(content[: len(content) // 2])


def _pickled_weights(root: Path) -> None:
    (root / "model.safetensors").unlink()
    torch.save({"code": _Harm()}, root / "pytorch_model.bin")


def _few_weights(root: Path) -> None:
    weights = load_file(root / "model.safetensors")
    del weights["roberta.encoder.layer.0.attention.self.query.weight"]
    save_file(weights, root / "model.safetensors", metadata={"format": "pt"})


def _other_size(root: Path) -> None:
    config = json.loads((root / "config.json").read_text())
    (root / "config.json").write_text(json.dumps({**config, "vocab_size": 400}))


def _no_tokenizer(root: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (root / name).unlink()


def _torn_tokenizer(root: Path) -> None:
    (root / "tokenizer.json").write_text("{")


def _large_tokenizer(root: Path) -> None:
    tokenizer = Tokenizer.from_file(str(root / "tokenizer.json"))
    tokenizer.add_tokens([f"more{number}" for number in range(100)])
    tokenizer.save(str(root / "tokenizer.json"))


def _far_token(root: Path) -> None:
    path = root / "tokenizer.json"
    content = json.loads(path.read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary[max(vocabulary, key=vocabulary.__getitem__)] = 1000
    path.write_text(json.dumps(content))


def _no_padding(root: Path) -> None:
    config = json.loads((root / "config.json").read_text())
    (root / "config.json").write_text(json.dumps({**config, "pad_token_id": None}))


class _Harm:
    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return exec, ("raise SystemExit('this must not run')",)


@pytest.mark.parametrize(
    "harm",
    [
        _no_config,
        _torn_config,
        _other_model,
        _own_code,
        _no_weights,
        _torn_weights,
        _pickled_weights,
        _few_weights,
        _other_size,
        _no_tokenizer,
        _torn_tokenizer,
        _large_tokenizer,
        _far_token,
        _no_padding,
    ],
)
def test_a_broken_directory_is_named(tmp_path: Path, harm: Callable[[Path], None], approved: Approved) -> None:
    harm(directory(tmp_path))
    with pytest.raises(DataError) as caught:
        load(tmp_path, classes=CLASSES, dropout=0.1)
    assert str(caught.value) == approved.of_row("message", tmp_path=tmp_path)
    assert "\n" not in caught.value.message


def test_a_missing_directory_is_named(tmp_path: Path, approved: Approved) -> None:
    with pytest.raises(DataError) as raised:
        load(tmp_path / "absent", classes=CLASSES, dropout=0.1)
    assert str(raised.value) == approved("message", tmp_path=tmp_path)
