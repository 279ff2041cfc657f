"""FSDP fills a model that was built without weights: each rank reads its own part of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.trainer.parallel.toy import MINUTE, Toy, begin, config, descend, equal, weights
from tests.trainer.ranks import on_ranks, results
from torchyard.contract.errors import DataError
from trainer.parallel import make_strategy
from trainer.task import Unfilled
from trainer.weights.home import without_weights
from trainer.world import joined

FSDP = {"strategy": "fsdp"}


@dataclass(frozen=True)
class Counted:
    """A tensor as a slice of a file, which counts the bytes that are read."""

    tensor: Tensor
    read: list[int] = field(default_factory=list[int])

    @property
    def shape(self) -> torch.Size:
        return self.tensor.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.tensor.dtype

    def __getitem__(self, part: tuple[slice, ...]) -> Tensor:
        found = self.tensor[part]
        self.read.append(found.nbytes)
        return found


def slices(state: Mapping[str, Tensor]) -> dict[str, Counted]:
    return {name: Counted(tensor) for name, tensor in state.items()}


def read(slices: Mapping[str, Counted]) -> int:
    return sum(size for item in slices.values() for size in item.read)


def train_filled() -> tuple[list[Tensor], list[Tensor], int, int]:
    """Returns weights of a model that was filled and of one that was not, the bytes read, and those of all weights."""
    with joined(MINUTE) as world:
        plain = Toy(norm=True)
        parts = slices(Toy(norm=True).state_dict())
        with without_weights():
            empty = Toy(seed=5, norm=True)
        assert all(item.is_meta for item in empty.parameters())
        filled = make_strategy(empty, config(**FSDP), world, unfilled=Unfilled({**parts}))
        first = equal(weights(empty), list(Toy(norm=True).parameters()))
        assert first
        descend(begin(plain, world, **FSDP), world, [1, 2])
        descend(filled, world, [1, 2])
        whole = sum(item.nbytes for item in plain.parameters())
        return weights(empty), weights(plain), read(parts), whole


@pytest.mark.thorough  # test_fsdp_language.py trains a language model so
@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_filled_model_trains_as_one_with_weights_and_each_rank_reads_its_part(size: int) -> None:
    outcomes = results(on_ranks(size, train_filled))
    for filled, plain, _, _ in outcomes:
        assert equal(filled, plain)
    whole = outcomes[0][3]
    assert sum(read for _, _, read, _ in outcomes) == whole
    assert all(read <= 2 * whole // size for _, _, read, _ in outcomes)  # shards of few rows are not equal


def refuse(change: str, at: int) -> None:
    """Fills a model from weights that are wrong in the part of rank `at`, or cannot be read there."""
    with joined(MINUTE) as world:
        state = Toy(norm=True).state_dict()
        if change == "missing":
            del state["blocks.1.0.weight"]
        elif change == "shape":
            state["blocks.1.0.weight"] = torch.zeros(5, 4)
        elif change == "not a number":
            state["blocks.1.0.weight"][-1 if at else 0, 2] = float("nan")
        parts: dict[str, Any] = dict(slices(state))
        if change == "torn" and world.rank == at:
            parts["blocks.1.0.weight"] = Torn(state["blocks.1.0.weight"])
        with without_weights():
            empty = Toy(norm=True)
        make_strategy(empty, config(**FSDP), world, unfilled=Unfilled({**parts}))


class Torn(Counted):
    def __getitem__(self, part: tuple[slice, ...]) -> Tensor:
        raise DataError("model.safetensors ends before blocks.1.0.weight")


REFUSED = {
    "missing": "there is no blocks.1.0.weight",
    "shape": r"blocks.1.0.weight is \(5, 4\), and the model's is \(5, 5\)",
    "not a number": "blocks.1.0.weight has a value that is not a finite number",
    "torn": "model.safetensors ends before blocks.1.0.weight",
}


@pytest.mark.parametrize(
    ("change", "at"),
    [
        ("missing", 0),
        pytest.param("shape", 0, marks=pytest.mark.thorough),
        pytest.param("not a number", 1, marks=pytest.mark.thorough),
        ("torn", 1),
    ],
)
def test_wrong_weights_are_refused_by_name_on_all_ranks(change: str, at: int) -> None:
    for error in on_ranks(2, refuse, change, at):
        assert isinstance(error, DataError)
        assert re.search(REFUSED[change], error.message)


def test_modules_are_built_without_weights_but_with_buffers() -> None:
    with without_weights():
        empty = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 4))
        tied = nn.Linear(4, 4, bias=False)
        empty[1].weight = tied.weight
    assert all(item.is_meta for item in empty.parameters())
    assert empty[1].weight is tied.weight
    assert [item.tolist() for item in empty.buffers()] == [[0.0] * 4, [1.0] * 4, 0]
    assert not nn.Linear(2, 2).weight.is_meta
