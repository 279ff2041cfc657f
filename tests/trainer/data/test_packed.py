"""Documents of one row do not see each other: their logits are those that each has alone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.trainer.bases import tiny_base
from trainer.data.documents import Documents
from trainer.data.packing import Packs
from trainer.data.sequences import Sequences

CPU = torch.device("cpu")
LENGTHS = (5, 1, 17, 3, 9, 8, 12)
ROWS = ([2, 0], [1, 3, 4], [5], [6, 1])
"""They have different lengths, so three of them are padded."""

Load = Callable[[str, str], Any]


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    folders: dict[str, Path] = {}

    def loaded(kind: str, attention: str) -> Any:
        from transformers import AutoModelForCausalLM

        if kind not in folders:
            folders[kind] = tiny_base(tmp_path_factory.mktemp("base"), kind=kind)
        return AutoModelForCausalLM.from_pretrained(folders[kind], attn_implementation=attention).eval()

    return loaded


@pytest.fixture(scope="module")
def documents() -> Documents:
    starts = torch.tensor([0, *LENGTHS]).cumsum(0)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, 300, (int(starts[-1]),), generator=generator, dtype=torch.int32)
    counted = torch.ones(len(ids), dtype=torch.bool)
    counted[starts[:-1]] = False
    return Documents(ids, counted, starts, too_long=0)


def packed(documents: Documents) -> dict[str, Tensor]:
    order = [index for row in ROWS for index in row]
    starts = torch.tensor([0, *map(len, ROWS)]).cumsum(0)
    sequences = Sequences(documents, Packs(torch.tensor(order), starts), form="text")
    return next(sequences.batches([torch.arange(len(ROWS))], device=CPU)).inputs


def distance(model: Any, documents: Documents, **options: Any) -> float:
    """Returns how far the logits in the rows are from those of each document alone, relative to the largest."""
    inputs = packed(documents)
    with torch.no_grad():
        logits = model(inputs["input_ids"], position_ids=inputs["position_ids"], use_cache=False, **options).logits
        found = torch.cat([row[: sum(LENGTHS[index] for index in ROWS[place])] for place, row in enumerate(logits)])
        ids = [documents.ids[documents.starts[index] :][: LENGTHS[index]].long() for row in ROWS for index in row]
        expected = torch.cat([model(document[None]).logits[0] for document in ids])
    return float((found - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", ["llama", "gpt2", "qwen2"])
def test_documents_in_a_row_have_the_logits_that_they_have_alone(
    load: Load, documents: Documents, kind: str, attention: str
) -> None:
    model = load(kind, attention)
    assert distance(model, documents) < 4e-7
    if attention == "sdpa":  # the other computes parts in single precision
        assert distance(model.double(), documents) < 1e-14


def test_with_a_mask_of_ones_they_see_each_other(load: Load, documents: Documents) -> None:
    model = load("llama", "sdpa")
    ones = torch.ones_like(packed(documents)["input_ids"])
    assert distance(model, documents, attention_mask=ones) > 0.01
