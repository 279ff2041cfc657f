"""Models of timm and transformers: names from lists, sizes from options, and nothing of the network."""

import builtins
from pathlib import Path
import socket
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.approved import Approved
import torchyard
from torchyard.contract.errors import ConfigError, InvalidSpec, TorchyardError
from torchyard.contract.recipes import HF_PICTURES, HF_TEXTS, ImageClassification
from torchyard.contract.spec.spec import parse_spec
from torchyard.models import library, text, vision

BERT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
VIT = {**BERT, "patch_size": 8}
STAGES = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}
SWIN = {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "patch_size": 4, "window_size": 4}
PICTURES: dict[str, dict[str, Any]] = {
    "beit": VIT,
    "convnext": STAGES,
    "convnextv2": STAGES,
    "mobilenet_v2": {},
    "regnet": {**STAGES, "embedding_size": 8},
    "resnet": {**STAGES, "embedding_size": 8},
    "swin": SWIN,
    "swinv2": SWIN,
    "vit": VIT,
}
TEXTS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(HF_TEXTS, BERT),
    "distilbert": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "hidden_dim": 48},
}


def of_pictures(name: str, options: dict[str, Any] | None = None) -> nn.Module:
    torch.manual_seed(0)
    return vision.build(name, channels=3, height=32, width=32, classes=3, options=options)


def trains(model: nn.Module, inputs: Tensor | dict[str, Tensor]) -> None:
    """Requires a gradient of each parameter: DDP waits for all of them."""
    logits = model.train()(inputs)
    assert logits.shape == (2, 3)
    logits.sum().backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


@pytest.mark.parametrize("kind", HF_PICTURES)
def test_each_type_of_pictures_is_built_by_options_and_trains(kind: str) -> None:
    trains(of_pictures(f"hf/{kind}", PICTURES[kind]), torch.randn(2, 3, 32, 32))


@pytest.mark.parametrize("name", ["test_resnet", "test_vit", "test_convnext"])
def test_a_model_of_timm_is_built_for_the_size_of_the_pictures(name: str) -> None:
    trains(of_pictures(f"timm/{name}"), torch.randn(2, 3, 32, 32))


@pytest.mark.parametrize("kind", HF_TEXTS)
def test_each_type_of_texts_is_built_by_options_and_padding_changes_nothing(kind: str) -> None:
    torch.manual_seed(0)
    model = text.build(f"hf/{kind}", vocabulary=300, classes=["a", "b", "c"], dropout=0.0, options=TEXTS[kind]).eval()
    ids = torch.randint(5, 300, (2, 9))
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[1, 4:] = False
    ids[1, 4:] = text.padding(model)
    batch = {"input_ids": ids, "attention_mask": mask}
    alone = model({"input_ids": ids[1:, :4], "attention_mask": mask[1:, :4]})
    assert torch.allclose(model(batch)[1:], alone, atol=1e-5)
    assert text.longest(text.own_config(model)) >= text.POSITIONS
    trains(model, batch)
    again = text.rebuild(text.config_of(model))
    again.load_state_dict(model.state_dict())
    assert torch.equal(again.eval()(batch), model.eval()(batch))


@pytest.mark.parametrize(
    "name",
    [
        "timm/hf-hub:someone/model",
        "timm/hf_hub:someone/model",
        "timm/local-dir:/etc",
        "timm/resnet18.a1_in1k",
        "timm/someone/model",
        "hf/someone/model",
        "hf/llama",
        "hf/timm_wrapper",
        "someone/model",
        "hf/vit\n",
    ],
)
def test_a_name_that_may_download_or_load_is_refused_when_the_job_is_submitted(name: str) -> None:
    for trainer, data in (("image-classification", "digits"), ("text-classification", "file:///x")):
        with pytest.raises(InvalidSpec) as caught:
            parse_spec({"trainer": trainer, "config": {"model": {"name": name}, "data": {"source": data}}})
        assert [error.field for error in caught.value.errors] == ["config.model.name"]


@pytest.mark.parametrize(
    "model",
    [
        {"name": "timm/resnet18", "weights": "DEFAULT"},
        {"name": "resnet18", "options": {"depths": [1]}},
        {"name": "hf/vit", "options": {"auto_map": 1}},
        {"name": "hf/vit", "options": {"hidden_size": 1_000_000}},
    ],
)
def test_options_and_weights_that_cannot_be_are_refused(model: dict[str, Any], approved: Approved) -> None:
    with pytest.raises(InvalidSpec) as caught:
        parse_spec({"trainer": "image-classification", "config": {"model": model}})
    assert caught.value.errors[0].message == approved.of_row("message")


def test_a_name_that_is_not_in_the_list_is_refused_with_similar_ones() -> None:
    with pytest.raises(ConfigError, match="timm has no model 'resnet19'; did you mean timm/resnet"):
        vision.check_name("timm/resnet19")
    for name in ("timm/hf-hub:someone/model", "timm/local-dir:/tmp"):  # what a checkpoint says was never submitted
        with pytest.raises(ConfigError, match="timm has no model"):
            of_pictures(name)
    with pytest.raises(ConfigError, match="hf/ has beit"):
        of_pictures("hf/someone/model")


def test_options_that_a_type_does_not_have_or_take_are_named(approved: Approved) -> None:
    with pytest.raises(ConfigError) as raised:
        of_pictures("hf/resnet", {"hidden_size": 32})
    assert str(raised.value) == approved("message")
    with pytest.raises(ConfigError) as raised:
        of_pictures("hf/vit", {**VIT, "patch_size": 64})
    assert str(raised.value) == approved("cannot take pictures")
    with pytest.raises(ConfigError) as raised:
        text.build("hf/bert", vocabulary=300, classes=["a"], dropout=0.0, options={**BERT, "hidden_size": 33})
    assert str(raised.value) == approved("model options cannot")


def test_without_timm_the_job_ends_with_one_line(monkeypatch: pytest.MonkeyPatch, approved: Approved) -> None:
    imported = builtins.__import__

    def absent(name: str, *rest: Any) -> Any:
        if name == "timm":
            raise ImportError("No module named 'timm'")
        return imported(name, *rest)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(ConfigError) as raised:
        library.check_pictures("timm/resnet18")
    assert str(raised.value) == approved("message")


def saved(folder: Path, model: dict[str, Any]) -> Path:
    """Writes a checkpoint of a small vision transformer whose configuration names `model`."""
    config = ImageClassification().model_dump(mode="json")
    state = {
        "recipe": "image-classification",
        "config": {**config, "model": {**config["model"], **model}},
        "model": of_pictures("hf/vit", VIT).state_dict(),
        "classes": ["a", "b", "c"],
        "normalization": {"mean": [0.5], "std": [0.5]},
        "input": {"channels": 3, "height": 32, "width": 32},
    }
    torch.save(state, folder / "state.pt")
    return folder / "state.pt"


def test_a_checkpoint_is_loaded_by_the_name_of_its_model(tmp_path: Path) -> None:
    model = torchyard.load(saved(tmp_path, {"name": "hf/vit", "options": VIT}), device="cpu")
    assert model.metadata["classes"] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "model",
    [
        {"name": "timm/hf-hub:someone/model"},
        {"name": "hf/someone/model"},
        {"name": "timm/no_such_model"},
        {"name": "hf/vit", "options": {**VIT, "auto_map": 1}},
        {"name": "hf/vit", "options": {**VIT, "intermediate_size": 65_536}},
        {"name": "hf/vit", "options": {**VIT, "num_hidden_layers": 65_536}},
    ],
)
def test_a_checkpoint_that_names_what_no_job_may_takes_one_line_and_no_memory(
    tmp_path: Path, model: dict[str, Any], monkeypatch: pytest.MonkeyPatch, approved: Approved
) -> None:
    path = saved(tmp_path, model)
    monkeypatch.setattr(socket, "socket", None)  # whoever asks the network ends with another error
    with pytest.raises(TorchyardError) as caught:
        torchyard.load(path, device="cpu")
    assert caught.value.message == approved.of_row("message", tmp_path=tmp_path)
    assert "\n" not in caught.value.message
