"""Files that are no checkpoint that can be used: each is one line, and nothing in it is run."""

from collections.abc import Callable
import json
import os
from pathlib import Path
import pickle
from typing import Any
import zipfile

import numpy as np
import pytest
from safetensors.torch import save_file
import torch

from tests.approved import Approved
from tests.archives import archive_of
from tests.torchyard.states import parts
import torchyard
from torchyard.contract.errors import ConfigError, DataError
from torchyard.contract.recipes import REGISTRY
from torchyard.models import checkpoint, text, unet, vision
from trainer.data.tokens import train_tokenizer

CLASSES = ["bad", "good"]
State = dict[str, Any]


def digits() -> State:
    model = vision.build("small_cnn", channels=1, height=8, width=8, classes=2)
    return {
        **_recipe("image-classification", {}),
        "model": model.state_dict(),
        "input": {"channels": 1, "height": 8, "width": 8},
        "normalization": {"mean": [0.5], "std": [0.5]},
    }


def walls() -> State:
    return {
        **_recipe("segmentation", {"source": "file:///absent", "image_size": 32}),
        "model": unet.build("unet_small").state_dict(),
        "input": {"channels": 3, "height": 32, "width": 32},
        "normalization": {"mean": [0.5], "std": [0.5]},
        "threshold": 0.5,
    }


def films() -> State:
    tokenizer = train_tokenizer(["a fine film", "a dull film"], vocabulary=300)
    model = text.build("tiny", vocabulary=tokenizer.vocabulary, classes=CLASSES, dropout=0.1)
    return {
        **_recipe("text-classification", {"source": "file:///absent"}),
        "model": model.state_dict(),
        "tokenizer": {"content": tokenizer.content, "roles": tokenizer.roles},
        "model_config": text.config_of(model),
    }


def _recipe(name: str, data: dict[str, Any]) -> State:
    config = REGISTRY[name].config.model_validate({"data": data})
    return {"format": 1, "recipe": name, "config": config.model_dump(mode="json"), "classes": CLASSES}


def refused(path: Path) -> str:
    """Returns why a file cannot be loaded."""
    with pytest.raises((DataError, ConfigError)) as caught:
        torchyard.load(path, device="cpu")
    assert "\n" not in caught.value.message
    assert str(path) in caught.value.message
    return caught.value.message


def refused_state(folder: Path, state: Any) -> str:
    torch.save(state, folder / "best.pt")
    return refused(folder / "best.pt")


@pytest.mark.parametrize("make", [digits, walls, films])
def test_a_checkpoint_in_parts_is_loaded_from_its_folder_its_index_or_its_archive(
    tmp_path: Path, make: Callable[[], State]
) -> None:
    state = make()
    folder = parts.write(tmp_path / "checkpoint", state, ranks=3)
    archive = tmp_path / "best.tar"
    archive.write_bytes(archive_of({path.name: path.read_bytes() for path in folder.iterdir()}))
    for path in (folder, folder / "state.index.json", archive):
        model = torchyard.load(path, device="cpu")
        loaded = model.module.state_dict()
        assert loaded.keys() == state["model"].keys()
        assert all(torch.equal(loaded[name], value) for name, value in state["model"].items())
        assert model.metadata["classes"] == CLASSES


@pytest.mark.parametrize("name", ["state-1.safetensors", "state.index.json"])
def test_a_checkpoint_of_which_a_part_is_missing_is_refused(tmp_path: Path, name: str) -> None:
    folder = parts.write(tmp_path / "checkpoint", digits())
    archive = tmp_path / "best.tar"
    archive.write_bytes(archive_of({path.name: path.read_bytes() for path in folder.iterdir() if path.name != name}))
    assert (
        refused(archive) == f"{archive}: its file {name} is missing: download the checkpoint again, or use another one"
    )
    archive.write_bytes(b"no archive")
    assert "it is incomplete, or no archive of a checkpoint" in refused(archive)


@pytest.mark.parametrize("make", [digits, walls, films])
def test_a_state_from_before_formats_were_numbered_is_loaded(tmp_path: Path, make: Callable[[], State]) -> None:
    state = make()
    del state["format"]
    torch.save(state, tmp_path / "best.pt")
    assert torchyard.load(tmp_path / "best.pt", device="cpu").recipe == state["recipe"]


class Hostile:
    def __reduce__(self) -> Any:
        return os.mkdir, ("was-run",)


def test_nothing_in_a_file_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, approved: Approved) -> None:
    monkeypatch.chdir(tmp_path)
    assert refused_state(tmp_path, {**digits(), "metrics": Hostile()}) == approved("refused_state", tmp_path=tmp_path)
    (tmp_path / "plain.pt").write_bytes(pickle.dumps(Hostile()))
    assert refused(tmp_path / "plain.pt") == approved("refused", tmp_path=tmp_path)
    assert not (tmp_path / "was-run").exists()


@pytest.mark.parametrize(
    ("kept", "added"),
    [
        (slice(0), b""),
        (slice(0), b"hello"),
        (slice(1000), b""),
        (slice(-9), b""),
        pytest.param(slice(4), bytes(99), id="four bytes, then zeros"),
    ],
)
def test_a_torn_file_is_refused(tmp_path: Path, kept: slice, added: bytes, approved: Approved) -> None:
    path = tmp_path / "best.pt"
    torch.save(digits(), path)
    path.write_bytes(path.read_bytes()[kept] + added)
    assert refused(path) == approved.of_row("message", path=path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    assert "does not exist" in refused(tmp_path / "absent.pt")
    assert "is no file" in refused(tmp_path)
    os.mkfifo(tmp_path / "pipe.pt")
    assert "is no file" in refused(tmp_path / "pipe.pt")


def test_a_compressed_file_which_may_be_a_bomb_is_refused(tmp_path: Path) -> None:
    torch.save(digits(), tmp_path / "plain.pt")
    with zipfile.ZipFile(tmp_path / "plain.pt") as plain, zipfile.ZipFile(tmp_path / "a.pt", "w", 8) as packed:
        for name in plain.namelist():
            packed.writestr(name, plain.read(name))
    assert "it is compressed" in refused(tmp_path / "a.pt")


def test_a_tensor_larger_than_its_file_takes_no_memory(tmp_path: Path, approved: Approved) -> None:
    torch.save({"a": torch.zeros(4)}, tmp_path / "plain.pt")
    with zipfile.ZipFile(tmp_path / "plain.pt") as plain, zipfile.ZipFile(tmp_path / "a.pt", "w") as changed:
        for name in plain.namelist():
            huge = b"J" + (2**30).to_bytes(4, "little")
            content = plain.read(name)
            if name.endswith("data.pkl"):
                assert content.count(b"K\x04") == 2
                content = content.replace(b"K\x04", huge)
            changed.writestr(name, content)
    assert refused(tmp_path / "a.pt") == approved("refused", tmp_path=tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"format": "1"},
        {"format": True},
        {"recipe": "script"},
        {"recipe": ["x"]},
        {"config": None},
        {"config": {"model": {"name": 5}}},
        {"config": {"model": {"name": "os_system"}}},
        {"config": {"model": {"name": "resnet18"}}},
        {"model": "x"},
        {"model": {"features.0.weight": "x"}},
        {"model": {"features.0.weight": torch.zeros(2, device="meta")}},
        {"model": {"features.0.weight": torch.zeros(1).expand(10**9, 10**6)}},
        {"classes": ["a", "b", "c"]},
        {"classes": "ab"},
        {"classes": ["a", "a"]},
        {"classes": []},
        {"input": {"channels": 1, "height": 10**9, "width": 8}},
        {"input": {"channels": 1, "height": 8192, "width": 8192}},
        {"input": {"channels": 1, "height": -8, "width": 8}},
        {"normalization": {"mean": [0.5], "std": [0.0]}},
        {"normalization": {"mean": [0.5, 0.5], "std": [1.0, 1.0]}},
        {"crop_fraction": 0.0},
    ],
)
def test_pictures_whose_metadata_mean_nothing_are_refused(tmp_path: Path, change: State, approved: Approved) -> None:
    assert refused_state(tmp_path, {**digits(), **change}) == approved.of_row("refused_state", tmp_path=tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"threshold": 2.0},
        {"outputs": 7},
        {"classes": ["a", "b", "c"]},
        {"palette": [[0, 0, 300], [0, 0, 0]]},
        {"palette": [[0, 0, 0]]},
    ],
)
def test_masks_whose_metadata_mean_nothing_are_refused(tmp_path: Path, change: State, approved: Approved) -> None:
    assert refused_state(tmp_path, {**walls(), **change}) == approved.of_row("refused_state", tmp_path=tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"model_type": "gpt2"},
        {"model_type": ["roberta"]},
        {"num_hidden_layers": 10**9},
        {"vocab_size": 10**12},
        {"hidden_act": "os.system"},
        {"num_attention_heads": 0},
        {"pad_token_id": None},
        {"max_position_embeddings": 4},
    ],
)
def test_a_text_model_that_cannot_be_is_refused(tmp_path: Path, change: State, approved: Approved) -> None:
    state = films()
    assert refused_state(tmp_path, {**state, "model_config": {**state["model_config"], **change}}) == approved.of_row(
        "refused_state", tmp_path=tmp_path
    )


def test_what_a_text_model_names_is_neither_imported_nor_downloaded(tmp_path: Path) -> None:
    state = films()
    named = {
        "auto_map": {"AutoModelForSequenceClassification": "stranger--code.Model"},
        "_name_or_path": "stranger/model",
        "attn_implementation": "stranger/kernel",
        "quantization_config": {"quant_method": "bitsandbytes"},
    }
    torch.save({**state, "model_config": {**state["model_config"], **named}}, tmp_path / "best.pt")
    model = torchyard.load(tmp_path / "best.pt", device="cpu")
    assert type(model.module).__mro__[2].__module__ == "transformers.models.roberta.modeling_roberta"
    assert not hasattr(text.own_config(model.module), "auto_map")
    assert model.predict("a fine film").label in CLASSES


def test_a_tokenizer_that_cannot_be_is_refused(tmp_path: Path, approved: Approved) -> None:
    state = films()

    def why(content: Any, roles: Any = None) -> str:
        tokenizer = {"content": content, "roles": roles or state["tokenizer"]["roles"]}
        return refused_state(tmp_path, {**state, "tokenizer": tokenizer})

    whole = json.loads(state["tokenizer"]["content"])
    vocabulary = {name: number + 10**6 for name, number in whole["model"]["vocab"].items()}
    assert why(json.dumps({**whole, "model": {**whole["model"], "vocab": vocabulary}})) == approved(
        "why", tmp_path=tmp_path
    )
    assert "cannot be used" in why("{}")
    assert "cannot be used" in why("[" * 100_000)
    assert why(" " * (65 << 20)) == approved("tokenizer content string", tmp_path=tmp_path)
    assert "tokenizer.roles" in why(state["tokenizer"]["content"], {"pad_token": 1})


def test_weights_that_are_not_finite_are_refused(tmp_path: Path, approved: Approved) -> None:
    state = digits()
    state["model"]["classifier.3.bias"][1] = torch.nan
    assert refused_state(tmp_path, state) == approved("refused_state", tmp_path=tmp_path)
    state = digits()
    state["model"]["features.1.running_mean"][:] = torch.nan
    torch.save(state, tmp_path / "best.pt")
    with pytest.raises(DataError) as raised:
        torchyard.load(tmp_path / "best.pt", device="cpu").predict(np.zeros((8, 8), np.uint8))
    assert str(raised.value) == approved("message")


@pytest.mark.parametrize("state", [{"step": 3, "model": {}}, [1, 2], {}])
def test_the_checkpoint_of_a_script_is_refused(tmp_path: Path, state: Any, approved: Approved) -> None:
    assert refused_state(tmp_path, state) == approved("refused_state", tmp_path=tmp_path)


def test_a_device_that_is_not_there_is_named(tmp_path: Path, approved: Approved) -> None:
    torch.save(digits(), tmp_path / "best.pt")
    with pytest.raises(ConfigError) as raised:
        torchyard.load(tmp_path / "best.pt", device="nonsense")
    assert str(raised.value) == approved("message")


def test_loading_draws_no_random_numbers(tmp_path: Path) -> None:
    torch.save(digits(), tmp_path / "best.pt")
    before = torch.get_rng_state()
    torchyard.load(tmp_path / "best.pt", device="cpu")
    assert torch.equal(torch.get_rng_state(), before)


def test_an_exported_file_is_loaded_and_weights_alone_are_not(tmp_path: Path, approved: Approved) -> None:
    state = digits()
    header = {key: value for key, value in state.items() if key != "model"}
    path = tmp_path / "model.safetensors"
    save_file(state["model"], path, metadata={checkpoint.HEADER_KEY: json.dumps(header)})
    torch.save(state, tmp_path / "best.pt")
    picture = np.ones((8, 8), np.float32)
    exported, own = (torchyard.load(file, device="cpu").predict(picture) for file in (path, tmp_path / "best.pt"))
    assert exported == own
    save_file(state["model"], path, metadata={checkpoint.HEADER_KEY: "[" * 100_000})
    assert refused(path) == approved("refused", tmp_path=tmp_path)
    save_file(state["model"], path)
    assert refused(path) == approved("has weights alone", tmp_path=tmp_path)
    path.write_bytes(path.read_bytes()[:100])
    assert refused(path) == approved("cannot be read", tmp_path=tmp_path)
