"""Each type of causal language models returns transformers' own loss, and documents of a row do not see each other."""

import inspect
from itertools import accumulate
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from tests.trainer.bases import tiny_base
from torchyard.contract.recipes.causal import HF_CAUSAL
from torchyard.models.base import load_model, open_base
from torchyard.models.causal import documents

LENGTHS = (7, 9, 4)


QUICK = ("gemma3_text", "gpt2", "gpt_neox", "granite", "llama", "mistral")
"""Types with layers, positions or windows of their own. The thorough run tries them all."""


@pytest.fixture(params=[pytest.param(kind, marks=[] if kind in QUICK else pytest.mark.thorough) for kind in HF_CAUSAL])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def inputs_of(ids: Tensor, lengths: tuple[int, ...]) -> dict[str, Tensor]:
    """Returns the inputs for one row of documents, of which all tokens but the first count."""
    row = ids.flatten()
    ends = list(accumulate(lengths))
    places = torch.cat([torch.arange(end - length, end - 1) for end, length in zip(ends, lengths, strict=True)])
    positions = torch.cat([torch.arange(length) for length in lengths])
    return {
        "input_ids": row[None],
        "position_ids": positions[None],
        "places": places,
        "labels": row[places + 1],
    }


OPTIONS: dict[str, dict[str, Any]] = {
    "gemma2": {"sliding_window": 4},
    "gemma3_text": {"sliding_window": 4, "final_logit_softcapping": 5.0},
    "granite": {"logits_scaling": 3.0, "embedding_multiplier": 2.0, "residual_multiplier": 0.5},
    "mistral": {"sliding_window": 4},
    "phi3": {"sliding_window": 4},
    "qwen2": {"sliding_window": 4, "use_sliding_window": True, "max_window_layers": 1},
    "qwen3": {"sliding_window": 4, "use_sliding_window": True, "max_window_layers": 1},
    "starcoder2": {"sliding_window": 4},
}
"""What a type may have besides: windows that are shorter than a document, and logits that are scaled or capped."""


def test_the_loss_of_a_type_is_transformers_and_documents_do_not_see_each_other(kind: str, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    tiny_base(tmp_path, kind=kind, initializer_range=0.2, **OPTIONS.get(kind, {}))
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    module: Any = load_model(open_base(tmp_path)).eval()
    assert inspect.signature(module.forward) == inspect.signature(theirs.forward)
    ids = torch.randint(5, 300, (1, sum(LENGTHS)), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        whole, packed = module(inputs_of(ids, (ids.shape[1],))), module(inputs_of(ids, LENGTHS))
        apart = [theirs(part, labels=part).loss for part in ids.split(LENGTHS, dim=1)]
        counts = torch.tensor([length - 1.0 for length in LENGTHS])
        torch.testing.assert_close(whole, theirs(ids, labels=ids).loss, atol=2e-6, rtol=2e-7)
        torch.testing.assert_close(packed, (torch.stack(apart) * counts).sum() / counts.sum(), atol=0, rtol=3e-7)
    settings = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 4, "do_sample": False}
    assert torch.equal(module.generate(ids, **settings), theirs.generate(ids, **settings))


def test_the_documents_of_a_row_are_found_without_a_look_at_the_device() -> None:
    from transformers.masking_utils import find_packed_sequence_indices

    positions = torch.tensor([[0, 1, 2, 0, 0, 1], [0, 0, 1, 2, 3, 0]])
    with torch.device("meta"):
        assert documents(torch.empty(2, 6, dtype=torch.int64)).shape == (2, 6)
    assert torch.equal(documents(positions), cast(Tensor, find_packed_sequence_indices(positions)))
    assert not bool(documents(torch.arange(5)[None]).any())


def test_the_state_has_tied_weights_once_and_is_loaded_again(tmp_path: Path) -> None:
    module = load_model(open_base(tiny_base(tmp_path, kind="gpt2")))
    state = {name: value.clone() for name, value in module.state_dict().items()}
    assert "lm_head.weight" not in state
    nn.init.zeros_(next(module.parameters()))
    module.load_state_dict(state)
    head: Any = cast(Any, module).lm_head.weight
    assert torch.equal(head, state["transformer.wte.weight"])
    with pytest.raises(RuntimeError, match=r"Missing key: transformer\.wte\.weight"):
        module.load_state_dict({name: value for name, value in state.items() if "wte" not in name})
