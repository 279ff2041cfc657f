"""What fits: the arithmetic of activations is what a model keeps, and the tables of the documents are its results."""

from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

from bench.fits import MODELS, tables
from torchyard.contract.recipes import LoraConfig
from torchyard.models.causal import rebuild
from torchyard.models.lora import inject
from trainer.activations import recompute_layers
from trainer.fits import Setup, Sizes, casts, needed, saved

SMALL = Sizes(hidden=96, layers=4, heads=4, key_heads=2, head_size=24, intermediate=256, vocabulary=320, tied=False)


def built(setup: Setup, sizes: Sizes = SMALL) -> nn.Module:
    config: dict[str, Any] = {
        "model_type": "llama",
        "hidden_size": sizes.hidden,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.key_heads,
        "intermediate_size": sizes.intermediate,
        "vocab_size": sizes.vocabulary,
        "tie_word_embeddings": sizes.tied,
        "max_position_embeddings": 512,
    }
    lora = setup.method == "lora"
    model = rebuild(config, dtype=torch.bfloat16 if lora and setup.half else torch.float32)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.02)
    if lora:
        inject(model, LoraConfig(rank=setup.rank), seed=1)
    if setup.recompute:
        recompute_layers(model)
    return model.train()


def batch(rows: int, length: int) -> dict[str, Tensor]:
    """Returns rows of two documents each."""
    ids = torch.randint(3, 300, (rows, length), generator=torch.Generator().manual_seed(2))
    positions = torch.arange(length).repeat(rows, 1)
    positions[:, length // 2 :] -= length // 2
    places = torch.arange(rows * length - 1)
    return {"input_ids": ids, "position_ids": positions, "places": places, "labels": ids.flatten()[1:]}


def kept_bytes(model: nn.Module, inputs: dict[str, Tensor], *, half: bool) -> int:
    """Returns the bytes that a forward pass keeps for the backward pass, without the parameters."""
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept.setdefault(tensor.untyped_storage().data_ptr(), tensor)
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    with hooks, torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
        model(inputs)
    return sum(tensor.untyped_storage().nbytes() for at, tensor in kept.items() if at not in own)


@pytest.mark.parametrize("method", ["lora", "full"])
@pytest.mark.parametrize("half", [True, False])
@pytest.mark.parametrize("recompute", [True, False])
def test_activations_are_what_a_model_keeps(method: Literal["lora", "full"], half: bool, recompute: bool) -> None:
    setup = Setup(method=method, half=half, recompute=recompute, rows=2, length=160, rank=8)
    measured = kept_bytes(built(setup), batch(setup.rows, setup.length), half=half)
    copies = 0 if recompute else casts(SMALL, setup)
    assert saved(SMALL, setup) + copies == pytest.approx(measured, rel=0.15)


@pytest.mark.parametrize("tied", [True, False])
def test_parameters_are_those_of_the_model(tied: bool) -> None:
    sizes = Sizes(hidden=96, layers=3, heads=4, key_heads=2, head_size=24, intermediate=256, vocabulary=320, tied=tied)
    full, lora = Setup(method="full", length=8), Setup(method="lora", length=8, rank=4)
    assert sizes.parameters == sum(item.numel() for item in built(full, sizes).parameters())
    adapter = sum(item.numel() for item in built(lora, sizes).parameters() if item.requires_grad)
    assert needed(sizes, lora).moments == 8 * adapter
    assert needed(sizes, full).moments == 8 * sizes.parameters


def test_the_tables_of_the_documents_are_what_the_arithmetic_says() -> None:
    assert tables() in (Path(__file__).parents[2] / "docs/reference/recipes.md").read_text(encoding="utf-8")


def test_more_devices_and_checkpointed_activations_take_less() -> None:
    model = MODELS["8B"]
    sizes = [needed(model, Setup(method="full", length=1024, devices=count)).total for count in (1, 2, 4, 8)]
    assert sizes == sorted(sizes, reverse=True)
    parts = needed(model, Setup(method="lora", length=4096))
    again = needed(model, Setup(method="lora", length=4096, recompute=True))
    assert again.activations * 8 < parts.activations
    assert again.weights == parts.weights
    assert needed(model, Setup(method="lora", length=4096, rows=2)).activations == 2 * parts.activations
