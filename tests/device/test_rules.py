"""The simulated device keeps a GPU's rules, so that code which breaks them fails in a test."""

from datetime import timedelta
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed, nn

from tests.device import sim
from tests.trainer.ranks import on_ranks, results
from trainer.world import joined


@pytest.fixture(scope="module")
def seen(library: Path) -> dict[str, Any]:
    """What each function below has returned. All have run in one process."""
    return results(on_ranks(1, see, library))[0]


def see(library: Path) -> dict[str, Any]:
    sim.load(library)
    return {each.__name__: each() for each in (fill, mix, fresh, wait, copy, draw, compute)}


def mix() -> list[str]:
    """Returns what mixtures of devices raise, and that a number may be on the host."""
    ours, other, host = (torch.ones(2, device=device) for device in ("sim:0", "sim:1", "cpu"))
    said: list[str] = []
    for wrong in (lambda: ours + host, lambda: ours.add_(host), lambda: ours + other, lambda: torch.cat([ours, host])):
        with pytest.raises(RuntimeError) as error:
            wrong()
        said.append(str(error.value))
    assert (ours * torch.tensor(3.0)).tolist() == [3.0, 3.0]
    return said


def test_tensors_of_two_devices_do_not_mix(seen: dict[str, Any]) -> None:
    said = seen["mix"]
    assert all("two devices" in text and "sim:0" in text for text in said)
    assert ["cpu" in text for text in said] == [True, True, False, True]


def fresh() -> list[bool]:
    empty = torch.empty(5, device="sim")
    grown = torch.zeros(2, device="sim").resize_(4)
    pinned = torch.empty(3, pin_memory=True)
    half = torch.empty_like(empty, dtype=torch.bfloat16)
    return [bool(value.isnan().any()) for value in (empty, grown, pinned, half)]


def test_fresh_memory_is_not_a_number(seen: dict[str, Any]) -> None:
    assert seen["fresh"] == [True] * 4


def wait() -> list[int]:
    """Returns how often the host waits in each of some operations."""
    values, index = torch.ones(4, device="sim"), torch.tensor([0, 2])
    pinned = torch.ones(4).pin_memory()
    actions = [
        values.sum,
        lambda: values.sum().item(),
        values.cpu,
        lambda: values.to("cpu", non_blocking=True),
        lambda: pinned.to("sim", non_blocking=True),
        lambda: torch.ones(4).to("sim", non_blocking=True),
        lambda: values[values > 0],
        lambda: values[index],
        values.nonzero,
        torch.accelerator.synchronize,
    ]
    counts: list[int] = []
    for action in actions:
        before = sim.host_waits()
        action()
        counts.append(sim.host_waits() - before)
    with sim.no_host_waits(), pytest.raises(RuntimeError, match="the host waits for the device here"):
        values.sum().item()
    return counts


def test_waits_of_the_host_are_counted_and_can_be_forbidden(seen: dict[str, Any]) -> None:
    assert seen["wait"] == [0, 1, 1, 0, 0, 1, 1, 1, 1, 1]


def copy() -> dict[str, list[float]]:
    source = torch.arange(3.0).pin_memory()
    there = source.to("sim", non_blocking=True)
    elsewhere = torch.accelerator.current_stream()
    with torch.Stream("sim"):
        other_stream = there.cpu().tolist()
    same_stream = there.cpu().tolist()
    back = there.to("cpu", non_blocking=True)
    early = back.tolist()
    there.fill_(7.0)  # later on the stream: the copy does not see it
    elsewhere.record_event().synchronize()
    return {"other stream": other_stream, "same stream": same_stream, "early": early, "waited": back.tolist()}


def test_a_copy_that_does_not_block_arrives_when_it_is_waited_for(seen: dict[str, Any]) -> None:
    copied = seen["copy"]
    assert copied["same stream"] == copied["waited"] == [0.0, 1.0, 2.0]
    assert all(math.isnan(value) for value in copied["other stream"] + copied["early"])


def draw() -> list[Any]:
    torch.manual_seed(5)
    host = torch.rand(2).tolist()
    one = torch.rand(2, device="sim:0").tolist()
    state = torch.get_device_module("sim").get_rng_state(torch.device("sim:0"))
    more = torch.rand(2, device="sim:0").tolist()
    other = torch.rand(2, device="sim:1").tolist()
    host_more = torch.rand(2).tolist()
    torch.get_device_module("sim").set_rng_state(state, torch.device("sim:0"))
    own = torch.Generator("sim:0").manual_seed(5)
    return [
        host != more,
        one == other,
        one != more,
        host_more != one,
        more == torch.rand(2, device="sim:0").tolist(),
        one == torch.rand(2, device="sim:0", generator=own).tolist(),
        nn.Dropout()(torch.ones(64, device="sim:0")).tolist() != nn.Dropout()(torch.ones(64, device="sim:0")).tolist(),
    ]


def test_each_device_has_random_numbers_of_its_own(seen: dict[str, Any]) -> None:
    assert seen["draw"] == [True] * 7


def fill() -> list[Any]:
    begin = torch.accelerator.memory_allocated(0)
    block = torch.empty(1 << 20, dtype=torch.uint8, device="sim:0")
    taken = torch.accelerator.memory_allocated(0) - begin
    del block
    sim.limit_memory(1 << 20)
    with pytest.raises(torch.OutOfMemoryError, match=r"out of memory. Tried to allocate"):
        torch.empty(1 << 21, dtype=torch.uint8, device="sim:0")
    small = torch.ones(1 << 17, device="sim:0")  # half of it
    with pytest.raises(torch.OutOfMemoryError):
        torch.add(small + 1, 1)
    peak = torch.accelerator.max_memory_allocated(0) - begin
    elsewhere, limit = torch.accelerator.max_memory_allocated(1), torch.accelerator.get_memory_info(0)[1]
    sim.limit_memory(0)
    return [taken, peak, elsewhere, limit]


def test_memory_is_counted_and_limited_for_each_device(seen: dict[str, Any]) -> None:
    assert seen["fill"] == [1 << 20, 1 << 20, 0, 1 << 20]


def communicate(library: Path) -> list[Any]:
    sim.load(library)
    with joined(timedelta(seconds=60)) as world:
        ours = torch.full((2,), float(world.rank + 1), device=world.device)
        mean, parts = ours.clone(), [torch.empty_like(ours) for _ in range(2)]
        distributed.all_reduce(mean, op=distributed.ReduceOp.AVG)
        distributed.all_gather(parts, ours)
        with pytest.raises(RuntimeError, match="No backend type associated with device type cpu"):
            distributed.all_reduce(torch.ones(2))
        return [str(world.device), mean.tolist(), torch.cat(parts).tolist(), world.gather(world.rank)]


def test_the_process_group_takes_tensors_of_the_device_only(library: Path) -> None:
    assert results(on_ranks(2, communicate, library)) == [
        ["sim:0", [1.5, 1.5], [1.0, 1.0, 2.0, 2.0], [0, 1]],
        ["sim:1", [1.5, 1.5], [1.0, 1.0, 2.0, 2.0], [0, 1]],
    ]


def compute() -> list[Any]:
    """Compares a small network's gradients with those on the CPU, and tries autocast and a fused optimizer."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))
    inputs = torch.randn(2, 3, 8, 8)
    gradients: list[list[float]] = []
    for device in ("cpu", "sim"):
        moved, there = network.to(device), inputs.to(device)
        moved.zero_grad()
        moved(there).square().mean().backward()
        gradients.append([value for item in moved.parameters() for value in item.grad.flatten().tolist()])  # pyright: ignore
    with torch.autocast("sim", dtype=torch.bfloat16):
        output = network(inputs.to("sim"))
        kinds = [output.dtype, output.softmax(1).dtype]
    optimizer = torch.optim.AdamW(network.parameters(), fused=True)
    vars(optimizer)["grad_scale"], vars(optimizer)["found_inf"] = None, torch.ones((), device="sim")
    before = [item.tolist() for item in network.parameters()]
    optimizer.step()
    skipped = before == [item.tolist() for item in network.parameters()]
    return [gradients[0] == gradients[1], kinds, skipped]


def test_a_network_computes_what_it_computes_on_the_cpu(seen: dict[str, Any]) -> None:
    assert seen["compute"] == [True, [torch.bfloat16, torch.float32], True]
