"""RoBERTa: built by size, rebuilt from a checkpoint's metadata."""

import copy
import json
from typing import Any, cast

import pytest
import torch
from torch import nn

from torchyard.models import text

CLASSES = ["neg", "pos"]
BATCH = {
    "input_ids": torch.tensor([[0, 9, 8, 7, 2], [0, 9, 2, 1, 1]]),
    "attention_mask": torch.tensor([[True] * 5, [True] * 3 + [False] * 2]),
}


def tiny(dropout: float = 0.1) -> nn.Module:
    torch.manual_seed(0)
    return text.build("tiny", vocabulary=300, classes=CLASSES, dropout=dropout)


def config(model: nn.Module) -> Any:
    return cast(Any, model).config


@pytest.mark.parametrize(("name", "parameters"), [("roberta_base", 124_647_170), ("roberta_large", 355_361_794)])
def test_a_published_size_has_the_published_number_of_parameters(name: str, parameters: int) -> None:
    with torch.device("meta"):
        model = text.build(name, vocabulary=50_265, classes=CLASSES, dropout=0.1)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


def test_a_model_takes_one_argument_and_gives_the_logits_of_the_library() -> None:
    from transformers import RobertaForSequenceClassification

    model = tiny().eval()
    theirs = RobertaForSequenceClassification(config(model)).eval()
    theirs.load_state_dict(model.state_dict())
    logits = model(BATCH)
    assert torch.allclose(logits, theirs(**BATCH).logits, atol=1e-6)
    shorter = {name: tensor[1:, :3] for name, tensor in BATCH.items()}
    assert torch.allclose(logits[1:], model(shorter), atol=1e-6)
    assert torch.equal(copy.deepcopy(model)(BATCH), logits)
    assert config(model)._attn_implementation == "sdpa"


def test_every_parameter_gets_a_gradient() -> None:
    model = tiny().train()
    model(BATCH).sum().backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


def test_dropout_is_set_by_the_configuration() -> None:
    assert {module.p for module in tiny(dropout=0.3).modules() if isinstance(module, nn.Dropout)} == {0.3}


def test_metadata_rebuilds_the_model() -> None:
    model = tiny(dropout=0.25).eval()
    metadata = json.loads(json.dumps(text.config_of(model)))
    again = text.rebuild(metadata).eval()
    again.load_state_dict(model.state_dict())
    assert torch.equal(again(BATCH), model(BATCH))
    assert text.config_of(again) == metadata
    assert text.padding(again) == 1
