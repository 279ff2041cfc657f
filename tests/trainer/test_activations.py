"""Layers that are computed again: the same gradients, and fewer activations."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.approved import Approved
from tests.trainer.bases import tiny_base
from tests.trainer.test_fits import batch, kept_bytes
from torchyard.contract.errors import ConfigError
from torchyard.contract.recipes import HF_CAUSAL, LoraConfig
from torchyard.models.base import load_model, open_base
from torchyard.models.lora import inject
from trainer.activations import recompute_layers


def gradients(model: nn.Module, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    torch.manual_seed(4)  # dropout of the adapter
    model.zero_grad(set_to_none=True)
    model(inputs).backward()
    return {name: item.grad for name, item in model.named_parameters() if item.grad is not None}


KINDS = [kind if kind in {"llama", "gpt2"} else pytest.param(kind, marks=pytest.mark.thorough) for kind in HF_CAUSAL]


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_stay_the_same_and_layers_keep_less(tmp_path: Path, kind: str) -> None:
    base = open_base(tiny_base(tmp_path / kind, kind=kind))
    inputs = batch(2, 48)
    for adapts in (True, False):
        model = load_model(base)
        if adapts:
            inject(model, LoraConfig(rank=4, dropout=0.3), seed=1)
            for name, parameter in model.named_parameters():
                if "lora_B" in name:
                    nn.init.normal_(parameter.data, std=0.1)
        model.train()
        before, kept = gradients(model, inputs), kept_bytes(model, inputs, half=False)
        recompute_layers(model)
        after, left = gradients(model, inputs), kept_bytes(model, inputs, half=False)
        assert left < kept / 2
        assert after.keys() == before.keys()
        assert all(torch.equal(after[name], before[name]) for name in before)


def test_a_model_without_such_layers_is_refused_by_the_key(tmp_path: Path, approved: Approved) -> None:
    model: Any = load_model(open_base(tiny_base(tmp_path / "tiny")))
    model.supports_gradient_checkpointing = False
    with pytest.raises(ConfigError) as raised:
        recompute_layers(model)
    assert str(raised.value) == approved("message")
