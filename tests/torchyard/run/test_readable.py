"""What a program saves is what `resume` gives back, or is refused when it is saved."""

from argparse import Namespace
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from torchyard.contract.attempts.rundir import Env, RunDir
from torchyard.run import Run


class Color(Enum):
    RED = 1


class Pair(NamedTuple):
    one: int
    other: int


@dataclass
class Settings:
    lr: float = 0.1


class Marked(Tensor):
    """A subclass, as libraries have them."""


@pytest.fixture
def folder(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path)
    run.create()
    return run


def saved_and_given_back(folder: RunDir, value: Any) -> Any:
    run = Run({Env.RUN_DIR: str(folder.job)})
    run.save_checkpoint({"value": value}, step=1)
    run.close()
    resumed = Run({Env.RESUME_FROM: str(folder.checkpoints / "step-00000001")}).resume()
    assert resumed is not None
    return resumed["value"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float64(0.5), 0.5),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        (Path("a/b"), "a/b"),
        (defaultdict(list, a=[1]), {"a": [1]}),
        (OrderedDict(a=1), OrderedDict(a=1)),
        (Counter("aab"), Counter("aab")),
        ({np.int64(1): (np.float32(2), {3, 4})}, {1: (2.0, {3, 4})}),
        ([torch.float16, torch.device("cpu"), torch.Size([2])], [torch.float16, torch.device("cpu"), torch.Size([2])]),
        (b"\x00", b"\x00"),
        (1j, 1j),
    ],
    ids=repr,
)
def test_what_has_one_meaning_is_given_back_as_that(folder: RunDir, value: Any, expected: Any) -> None:
    found = saved_and_given_back(folder, value)
    assert (type(found), found) == (type(expected), expected)


@pytest.mark.filterwarnings("ignore:Validating sparse tensor invariants")
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.tensor([1 + 2j], dtype=torch.complex128),
        lambda: torch.tensor([1 + 2j]).conj(),
        lambda: torch._neg_view(torch.ones(2)),
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.ones(2).to(torch.float8_e4m3fn),
        lambda: torch.ones(2, dtype=torch.uint16),
        lambda: nn.Parameter(torch.ones(2)),
    ],
    ids=["complex128", "conjugated", "negated", "sparse", "float8", "uint16", "parameter"],
)
def test_tensors_are_given_back_as_they_were(folder: RunDir, make: Callable[[], Tensor]) -> None:
    tensor = make()
    found = saved_and_given_back(folder, tensor)
    assert (found.dtype, found.layout) == (tensor.dtype, tensor.layout)
    assert torch.equal(found.to_dense().to(torch.complex128), tensor.detach().to_dense().to(torch.complex128))
    assert not found.is_conj()


def test_an_array_is_given_back_as_a_tensor_of_its_own(folder: RunDir) -> None:
    array = np.arange(6, dtype=np.float64).reshape(2, 3)[:, ::-1]
    found = saved_and_given_back(folder, array)
    assert torch.equal(found, torch.tensor([[2.0, 1, 0], [5, 4, 3]], dtype=torch.float64))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (
            Settings(),
            "state.best: is a tests.torchyard.run.test_readable.Settings, which a checkpoint cannot give back",
        ),
        (Color.RED, "state.best: is a tests.torchyard.run.test_readable.Color"),
        (Pair(1, 2), "state.best: is a tests.torchyard.run.test_readable.Pair"),
        (nn.Linear(1, 1), "save its state_dict()"),
        (torch.optim.SGD([torch.zeros(1)]), "save its state_dict()"),
        (Namespace(lr=1), "save vars() of it"),
        (torch.zeros(1).as_subclass(Marked), "state.best: is a Marked: save a torch.Tensor"),
        (torch.zeros(1, device="meta"), "state.best: is a tensor on the device meta"),
        (np.array(["a"]), "state.best: no tensor has the type <U1"),
        (len, "state.best: is a builtins.builtin_function_or_method"),
        ({Color.RED: 1}, "state.best.<Color.RED: 1>: is a tests"),
    ],
    ids=[
        "dataclass",
        "enum",
        "tuple",
        "module",
        "optimizer",
        "namespace",
        "subclass",
        "meta",
        "texts",
        "function",
        "key",
    ],
)
def test_what_cannot_be_given_back_is_refused_with_its_key_and_nothing_is_saved(
    folder: RunDir, value: Any, said: str
) -> None:
    run = Run({Env.RUN_DIR: str(folder.job)})
    with pytest.raises(TypeError) as caught:
        run.save_checkpoint({"state": {"best": value}}, step=1)
    assert said in str(caught.value)
    run.close()
    assert [*folder.checkpoints.iterdir()] == []


def test_a_state_that_holds_itself_is_refused(folder: RunDir) -> None:
    state: dict[str, Any] = {}
    state["again"] = state
    run = Run({Env.RUN_DIR: str(folder.job)})
    with pytest.raises(TypeError, match="holds itself"):
        run.save_checkpoint(state, step=1)
    run.close()
