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
def test_a_state_from_before_formats_were_numbered_is_loaded(tmp_path: Path, make: Callable[[], State]) -> None:
    state = make()
    del state["format"]
    torch.save(state, tmp_path / "best.pt")
    assert torchyard.load(tmp_path / "best.pt", device="cpu").recipe == state["recipe"]


class Hostile:
    def __reduce__(self) -> Any:
        return os.mkdir, ("was-run",)


def test_nothing_in_a_file_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "holds objects that no checkpoint" in refused_state(tmp_path, {**digits(), "metrics": Hostile()})
    (tmp_path / "plain.pt").write_bytes(pickle.dumps(Hostile()))
    assert "neither a state.pt nor" in refused(tmp_path / "plain.pt")
    assert not (tmp_path / "was-run").exists()


@pytest.mark.parametrize(
    ("kept", "added", "message"),
    [
        (slice(0), b"", "neither a state.pt nor a model.safetensors"),
        (slice(0), b"hello", "neither a state.pt nor a model.safetensors"),
        (slice(1000), b"", "cannot be read as a checkpoint"),
        (slice(-9), b"", "cannot be read as a checkpoint"),
        (slice(4), bytes(99), "cannot be read as a checkpoint"),
    ],
)
def test_a_torn_file_is_refused(tmp_path: Path, kept: slice, added: bytes, message: str) -> None:
    path = tmp_path / "best.pt"
    torch.save(digits(), path)
    path.write_bytes(path.read_bytes()[kept] + added)
    assert message in refused(path)


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


def test_a_tensor_larger_than_its_file_takes_no_memory(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(4)}, tmp_path / "plain.pt")
    with zipfile.ZipFile(tmp_path / "plain.pt") as plain, zipfile.ZipFile(tmp_path / "a.pt", "w") as changed:
        for name in plain.namelist():
            huge = b"J" + (2**30).to_bytes(4, "little")
            content = plain.read(name)
            if name.endswith("data.pkl"):
                assert content.count(b"K\x04") == 2
                content = content.replace(b"K\x04", huge)
            changed.writestr(name, content)
    assert "cannot be read as a checkpoint" in refused(tmp_path / "a.pt")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "was written by a newer version: it has format 2, and this one reads formats up to 1"),
        ({"format": "1"}, "its format is '1'"),
        ({"format": True}, "its format is 'True'"),
        ({"recipe": "script"}, "this version has no recipe script"),
        ({"recipe": ["x"]}, "this version has no recipe"),
        ({"config": None}, "its configuration is not valid in this version"),
        ({"config": {"model": {"name": 5}}}, "its configuration is not valid in this version"),
        ({"config": {"model": {"name": "os_system"}}}, "there is no model 'os_system'"),
        ({"config": {"model": {"name": "resnet18"}}}, "its weights do not fit its model"),
        ({"model": "x"}, "is not made of plain tensors"),
        ({"model": {"features.0.weight": "x"}}, "is not made of plain tensors"),
        ({"model": {"features.0.weight": torch.zeros(2, device="meta")}}, "is not made of plain tensors"),
        ({"model": {"features.0.weight": torch.zeros(1).expand(10**9, 10**6)}}, "its weights do not fit its model"),
        ({"classes": ["a", "b", "c"]}, "its weights do not fit its model: size mismatch for classifier.3.weight"),
        ({"classes": "ab"}, "classes: Input should be a valid list"),
        ({"classes": ["a", "a"]}, "two classes have one name"),
        ({"classes": []}, "classes: List should have at least 1 item"),
        ({"input": {"channels": 1, "height": 10**9, "width": 8}}, "input.height"),
        ({"input": {"channels": 1, "height": 8192, "width": 8192}}, "an input has at most"),
        ({"input": {"channels": 1, "height": -8, "width": 8}}, "input.height"),
        ({"normalization": {"mean": [0.5], "std": [0.0]}}, "every std must be above 0"),
        ({"normalization": {"mean": [0.5, 0.5], "std": [1.0, 1.0]}}, "its normalization has 2 channels"),
        ({"crop_fraction": 0.0}, "crop_fraction"),
    ],
)
def test_pictures_whose_metadata_mean_nothing_are_refused(tmp_path: Path, change: State, message: str) -> None:
    assert message in refused_state(tmp_path, {**digits(), **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"threshold": 2.0}, "threshold"),
        ({"outputs": 7}, "a model of 2 classes has not 7 outputs"),
        ({"classes": ["a", "b", "c"]}, "a model of 3 classes has not 1 outputs"),
        ({"palette": [[0, 0, 300], [0, 0, 0]]}, "palette.0.2"),
        ({"palette": [[0, 0, 0]]}, "palette"),
    ],
)
def test_masks_whose_metadata_mean_nothing_are_refused(tmp_path: Path, change: State, message: str) -> None:
    assert message in refused_state(tmp_path, {**walls(), **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gpt2"}, "its model_type is 'gpt2', not one of albert, bert, camembert"),
        ({"model_type": ["roberta"]}, "its model_type is"),
        ({"num_hidden_layers": 10**9}, "says that it has 1000000000 layers"),
        ({"vocab_size": 10**12}, "word_embeddings.weight of (1000000000000, 128), and it has one of"),
        ({"hidden_act": "os.system"}, "there is no 'os.system'"),
        ({"num_attention_heads": 0}, "cannot be used"),
        ({"pad_token_id": None}, "None for padding"),
        ({"max_position_embeddings": 4}, "position_embeddings.weight of (4, 128)"),
    ],
)
def test_a_text_model_that_cannot_be_is_refused(tmp_path: Path, change: State, message: str) -> None:
    state = films()
    assert message in refused_state(tmp_path, {**state, "model_config": {**state["model_config"], **change}})


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


def test_a_tokenizer_that_cannot_be_is_refused(tmp_path: Path) -> None:
    state = films()

    def why(content: Any, roles: Any = None) -> str:
        tokenizer = {"content": content, "roles": roles or state["tokenizer"]["roles"]}
        return refused_state(tmp_path, {**state, "tokenizer": tokenizer})

    whole = json.loads(state["tokenizer"]["content"])
    vocabulary = {name: number + 10**6 for name, number in whole["model"]["vocab"].items()}
    assert "its tokens are up to 100" in why(json.dumps({**whole, "model": {**whole["model"], "vocab": vocabulary}}))
    assert "cannot be used" in why("{}")
    assert "cannot be used" in why("[" * 100_000)
    assert "tokenizer.content: String should have at most" in why(" " * (65 << 20))
    assert "tokenizer.roles" in why(state["tokenizer"]["content"], {"pad_token": 1})


def test_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    state = digits()
    state["model"]["classifier.3.bias"][1] = torch.nan
    assert "its weights are not finite: classifier.3.bias" in refused_state(tmp_path, state)
    state = digits()
    state["model"]["features.1.running_mean"][:] = torch.nan
    torch.save(state, tmp_path / "best.pt")
    with pytest.raises(DataError, match="numbers that are not finite"):
        torchyard.load(tmp_path / "best.pt", device="cpu").predict(np.zeros((8, 8), np.uint8))


@pytest.mark.parametrize("state", [{"step": 3, "model": {}}, [1, 2], {}])
def test_the_checkpoint_of_a_script_is_refused(tmp_path: Path, state: Any) -> None:
    assert "Only its script can use the checkpoint of a script" in refused_state(tmp_path, state)


def test_a_device_that_is_not_there_is_named(tmp_path: Path) -> None:
    torch.save(digits(), tmp_path / "best.pt")
    with pytest.raises(ConfigError, match="the device nonsense cannot be used"):
        torchyard.load(tmp_path / "best.pt", device="nonsense")


def test_loading_draws_no_random_numbers(tmp_path: Path) -> None:
    torch.save(digits(), tmp_path / "best.pt")
    before = torch.get_rng_state()
    torchyard.load(tmp_path / "best.pt", device="cpu")
    assert torch.equal(torch.get_rng_state(), before)


def test_an_exported_file_is_loaded_and_weights_alone_are_not(tmp_path: Path) -> None:
    state = digits()
    header = {key: value for key, value in state.items() if key != "model"}
    path = tmp_path / "model.safetensors"
    save_file(state["model"], path, metadata={checkpoint.HEADER_KEY: json.dumps(header)})
    torch.save(state, tmp_path / "best.pt")
    picture = np.ones((8, 8), np.float32)
    exported, own = (torchyard.load(file, device="cpu").predict(picture) for file in (path, tmp_path / "best.pt"))
    assert exported == own
    save_file(state["model"], path, metadata={checkpoint.HEADER_KEY: "[" * 100_000})
    assert "cannot be read as a checkpoint" in refused(path)
    save_file(state["model"], path)
    assert "has weights alone: use the state.pt" in refused(path)
    path.write_bytes(path.read_bytes()[:100])
    assert "cannot be read as a checkpoint" in refused(path)
