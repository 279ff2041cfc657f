"""Tensors on their way into a checkpoint: copied once, with all that they are."""

from collections import OrderedDict
from pathlib import Path
import tracemalloc
from typing import Any

import pytest
from safetensors.torch import load, load_file
import torch
from torch import Tensor, nn

from tests.trainer.ranks import on_ranks, results
from torchyard.contract.attempts.records import Manifest
from torchyard.contract.attempts.rundir import WEIGHTS_FILE
from torchyard.run.eventlog import EventLog
from torchyard.run.saved import Saved
from torchyard.run.tensors import on_host, safetensors
from torchyard.states.tensorfile import write_tensors


def base() -> Tensor:
    return torch.arange(24.0).reshape(4, 6)


TENSORS: dict[str, Tensor] = {
    "whole": base(),
    "strided": base().T[1:, ::2],
    "offset": base()[2],
    "half": base().to(torch.bfloat16),
    "integers": base().long(),
    "scalar": torch.tensor(7.0),
    "empty": torch.empty(0, 3),
    "expanded": torch.ones(2).expand(3, 2),
    "conjugated": torch.view_as_complex(base().reshape(12, 2)).conj(),
    "sparse": torch.eye(3).to_sparse(),
    "parameter": nn.Parameter(base()),
    "of a graph": nn.Parameter(base()) * 2,
}


def cloned(tree: Any) -> Any:
    copies, wait = on_host(tree, clone=True)
    wait()
    return copies


@pytest.mark.parametrize("name", TENSORS)
def test_a_copy_is_equal_and_stays_so(name: str) -> None:
    tensor = TENSORS[name].detach()
    expected = tensor.to_dense().clone()
    copy = cloned([{"a": (TENSORS[name],)}])[0]["a"][0]
    (tensor.coalesce().values() if tensor.is_sparse else tensor[:1] if name == "expanded" else tensor).zero_()
    assert (copy.dtype, copy.layout, copy.requires_grad) == (tensor.dtype, tensor.layout, False)
    assert torch.equal(copy.to_dense(), expected)


def test_what_was_one_stays_one() -> None:
    weight = base()
    state = {"a": weight, "b": weight, "row": weight[1], "list": [weight, 1, "x"], "other": base()}
    copies = cloned(state)
    assert copies["a"] is copies["b"] is copies["list"][0]
    assert copies["row"].untyped_storage().data_ptr() == copies["a"].untyped_storage().data_ptr()
    assert copies["other"].untyped_storage().data_ptr() != copies["a"].untyped_storage().data_ptr()
    assert copies["a"].untyped_storage().data_ptr() != weight.untyped_storage().data_ptr()
    copies["row"].zero_()
    assert copies["a"][1].sum() == 0
    assert weight[1].sum() > 0


def test_without_a_clone_what_is_on_the_host_stays_where_it_is() -> None:
    weight = base()
    (one, inner), _ = on_host((weight, {"b": weight}), clone=False)
    assert one is inner["b"] is weight


def test_a_models_state_keeps_what_loading_needs() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    state = model.state_dict()
    copies = cloned({"model": state, "groups": [{"lr": 0.1}]})
    assert isinstance(copies["model"], OrderedDict)
    assert vars(copies["model"]) == vars(state)
    assert list(copies["model"]) == list(state)
    assert model.load_state_dict(copies["model"]).missing_keys == []


def test_the_weights_file_gives_each_name_a_memory_of_its_own() -> None:
    weight = base()
    read = load(safetensors({"a": weight, "tied": weight, "row": weight[1], "turned": weight.T}))
    assert {name: tensor.shape for name, tensor in read.items()} == {
        "a": (4, 6),
        "tied": (4, 6),
        "row": (6,),
        "turned": (6, 4),
    }
    assert torch.equal(read["turned"], weight.T)
    assert torch.equal(read["row"], weight[1])


@pytest.mark.parametrize("owned", [True, False])
def test_only_tensors_that_may_change_are_copied_before_they_are_written(tmp_path: Path, owned: bool) -> None:
    events = EventLog(tmp_path / "events.jsonl", synchronize=lambda: None)
    weight = base()
    saved = Saved(Manifest(step=1, files=[]), {"a": weight}, {"a": weight}, {}, None, print, owned)
    pending = saved.pending(tmp_path, events, clone=True)
    weight.zero_()
    pending.write()
    events.close()
    expected = torch.zeros(4, 6) if owned else base()
    for read in (load_file(tmp_path / "step-00000001" / WEIGHTS_FILE), torch.load(tmp_path / "step-00000001/state.pt")):
        assert torch.equal(read["a"], expected)


def test_the_weights_file_is_written_without_being_built_in_memory(tmp_path: Path) -> None:
    weights = {str(number): torch.ones(1 << 20) for number in range(8)}
    tracemalloc.start()
    try:
        with (tmp_path / "weights").open("wb") as file:
            write_tensors(weights, file)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20
    assert torch.equal(load_file(tmp_path / "weights")["3"], weights["3"])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU on this machine")
def test_a_copy_from_a_gpu_is_enqueued_before_what_changes_the_tensor_next_and_waits_for_nothing() -> None:
    # In a process of its own: this one would hold the GPU until its end, and no worker would offer it.
    results(on_ranks(1, _copy_from_a_gpu))


def _copy_from_a_gpu() -> None:
    weight = torch.arange(1 << 22, device="cuda", dtype=torch.float32)
    on_host(weight, clone=True)[1]()  # pinned memory is allocated once, and that may wait
    busy = torch.randn(4096, 4096, device="cuda")
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(50):
            busy = busy @ busy
        copies, wait = on_host({"a": weight, "half": weight[: 1 << 21]}, clone=True)
        assert not torch.cuda.current_stream().query()
        weight.zero_()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    wait()
    assert copies["a"].is_pinned()
    assert torch.equal(copies["a"], torch.arange(1 << 22, dtype=torch.float32))
    assert copies["half"].data_ptr() == copies["a"].data_ptr()
