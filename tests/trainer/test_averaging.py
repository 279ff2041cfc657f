from collections.abc import Callable, Iterable, Sequence
import copy
import io
import math
from typing import Any, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
import torch
from torch import Tensor, distributed, nn
from torch.nn.utils import get_total_norm
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode

from tests.trainer.ranks import on_ranks, results
from torchyard.contract.recipes import EmaConfig, LookaheadConfig, OptimizerConfig
from trainer.averaging import ExponentialAverage, Lookahead
from trainer.optimization import make_optimizer
from trainer.precision import Precision
from trainer.skipping import take_step

CPU = torch.device("cpu")
TAKEN, SKIPPED = torch.tensor(0.0), torch.tensor(1.0)
Average: TypeAlias = ExponentialAverage | Lookahead


class Walk(nn.Module):
    """A weight, a frozen weight and buffers, which the test changes."""

    def __init__(self, start: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([start], dtype=torch.float64))
        self.frozen = nn.Parameter(torch.tensor([0.1], dtype=torch.float64), requires_grad=False)
        self.mean: Tensor
        self.count: Tensor
        self.cache: Tensor
        self.register_buffer("mean", torch.tensor([0.0], dtype=torch.float64))
        self.register_buffer("count", torch.tensor(0))
        self.register_buffer("cache", torch.tensor([0.0]), persistent=False)

    def go(self, *averages: Average, to: Sequence[float], start: int = 1) -> None:
        """Takes a step to each value. One buffer becomes twice the value, another counts the steps."""
        for step, value in enumerate(to, start=start):
            with torch.no_grad():
                self.weight.fill_(value)
            self.mean.fill_(2 * value)
            self.count += 1
            for average in averages:
                average.update(step, skipped=TAKEN)


class Net(nn.Module):
    """A model with all kinds of tensors: convolution, batch norm, tied weights, frozen parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten())
        self.inner = nn.Linear(8, 8)
        self.tied = nn.Linear(8, 8)
        self.tied.weight = self.inner.weight
        self.tied.bias.requires_grad_(False)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.tied(self.inner(self.stem(inputs)).relu())


def train(model: nn.Module, optimizer: Optimizer, steps: Iterable[int], *averages: Average) -> None:
    for step in steps:
        inputs = torch.randn(4, 1, 4, 4, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
        for average in averages:
            average.update(step + 1, skipped=TAKEN)


def net() -> tuple[Net, Optimizer]:
    torch.manual_seed(0)
    model = Net()
    config = OptimizerConfig(name="adamw", weight_decay=0.1)
    return model, make_optimizer(model, config, lr=0.01, device=CPU)


def copies(tensors: dict[str, Any]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    """Returns whether tensors are bit-equal: NaN equals itself, and 0 is not -0."""
    return first.keys() == second.keys() and all(
        torch.equal(first[key].reshape(-1).view(torch.uint8), second[key].reshape(-1).view(torch.uint8))
        for key in first
    )


def saved(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.9])
def test_an_average_of_a_straight_line_lags_behind(decay: float) -> None:
    model = Walk()
    ema = ExponentialAverage(model, EmaConfig(decay=decay, ramp=0))
    model.go(ema, to=range(1, 21))
    lagging = 20 - decay * (1 - decay**20) / (1 - decay)
    assert ema.tensors["weight"].item() == pytest.approx(lagging, rel=1e-12)
    assert ema.tensors["mean"].item() == pytest.approx(2 * lagging, rel=1e-12)


def test_a_ramped_average_starts_with_the_newest_weights() -> None:
    model = Walk(start=5.0)
    ema = ExponentialAverage(model, EmaConfig(decay=0.9, ramp=4))
    seen: list[float] = []
    for step, value in enumerate((1.0, 2.0, 4.0), start=1):
        model.go(ema, to=[value], start=step)
        seen.append(ema.tensors["weight"].item())
    # d(u) = 0.9 · (1 − exp(−u / 4)): 0.199079, 0.354122, 0.474870
    assert seen == pytest.approx([1.7963172, 1.9278714, 3.0160081])


@settings(deadline=None)
@given(
    st.lists(st.floats(-100, 100), min_size=1, max_size=30),
    st.floats(0, 0.9999),
    st.integers(0, 50),
)
def test_an_average_is_the_weighted_sum_of_all_values(walk: list[float], decay: float, ramp: int) -> None:
    model = Walk(start=7.0)
    ema = ExponentialAverage(model, EmaConfig(decay=decay, ramp=ramp))
    model.go(ema, to=walk)
    decays = [decay * (1 - math.exp(-u / ramp)) if ramp else decay for u in range(1, len(walk) + 1)]
    later = [math.prod(decays[at:]) for at in range(len(walk) + 1)]  # the weight of an earlier value
    expected = 7.0 * later[0] + sum(value * (1 - decays[at]) * later[at + 1] for at, value in enumerate(walk))
    assert ema.tensors["weight"].item() == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_weights_and_floating_point_buffers_are_averaged() -> None:
    model = Walk()
    ema = ExponentialAverage(model, EmaConfig(decay=0.5, ramp=0))
    model.go(ema, to=[1.0, 2.0, 3.0])
    assert ema.tensors.keys() == model.state_dict().keys() == {"weight", "frozen", "mean", "count"}
    assert ema.tensors["count"].item() == 3
    assert ema.tensors["frozen"].item() == 0.1
    assert ema.tensors["weight"].item() == pytest.approx(2.125)
    assert model.weight.item() == 3.0
    assert model.mean.item() == 6.0


def test_tied_weights_are_averaged_once() -> None:
    model, optimizer = net()
    start = model.inner.weight.detach().clone()
    ema = ExponentialAverage(model, EmaConfig(decay=0.25, ramp=0))
    train(model, optimizer, [1], ema)
    assert ema.tensors.keys() == model.state_dict().keys()
    torch.testing.assert_close(ema.tensors["inner.weight"], 0.25 * start + 0.75 * model.inner.weight.detach())
    assert ema.tensors["tied.weight"] is ema.tensors["inner.weight"]


def test_the_average_is_applied_inside_the_context() -> None:
    model, optimizer = net()
    ema = ExponentialAverage(model, EmaConfig(decay=0.9, ramp=0))
    train(model, optimizer, range(3), ema)
    with torch.no_grad():
        model.inner.bias[0], model.inner.bias[1] = math.nan, -0.0
    average, own = copies(ema.tensors), copies(model.state_dict())
    with ema.applied():
        assert same(copies(model.state_dict()), average)
        model(torch.zeros(2, 1, 4, 4))  # training mode changes the buffers of batch norm
        assert not same(copies(model.state_dict()), average)
    assert same(copies(model.state_dict()), own)
    assert same(ema.tensors, average)
    assert all(item.requires_grad for group in optimizer.param_groups for item in group["params"])


def test_the_models_weights_are_restored_after_an_error() -> None:
    model, optimizer = net()
    ema = ExponentialAverage(model, EmaConfig(decay=0.9, ramp=0))
    train(model, optimizer, range(3), ema)
    own = copies(model.state_dict())

    def evaluate() -> None:
        with ema.applied():
            assert not same(copies(model.state_dict()), own)
            raise KeyError("data")

    with pytest.raises(KeyError):
        evaluate()
    assert same(copies(model.state_dict()), own)


def test_an_average_in_host_memory_is_the_same_one() -> None:
    averages: list[list[dict[str, Tensor]]] = []
    for device in ("model", "cpu"):
        model, optimizer = net()
        config = EmaConfig.model_validate({"decay": 0.9, "ramp": 3, "device": device})
        ema = ExponentialAverage(model, config)
        seen: list[dict[str, Tensor]] = []
        for step in range(1, 8):
            train(model, optimizer, [step])
            ema.update(step, skipped=SKIPPED if step == 4 else TAKEN)
            if step % 2:  # else the next update follows at once
                own = copies(model.state_dict())
                with ema.applied():
                    seen.append(copies(model.state_dict()))
                assert same(copies(model.state_dict()), own)
                assert same(copies(ema.tensors), seen[-1])
        averages.append(seen)
    assert all(same(one, other) for one, other in zip(*averages, strict=True))


def test_a_failure_of_the_thread_is_raised_by_the_next_step() -> None:
    model, _ = net()
    ema = ExponentialAverage(model, EmaConfig(device="cpu"))
    ema.tensors["inner.weight"].resize_(3)
    ema.update(1, skipped=TAKEN)
    with pytest.raises(RuntimeError, match="size of tensor"):
        ema.update(2, skipped=TAKEN)


def test_applying_the_average_does_not_change_training() -> None:
    states: list[dict[str, Tensor]] = []
    for applies in (False, True):
        model, optimizer = net()
        ema = ExponentialAverage(model, EmaConfig(decay=0.9, ramp=3))
        for step in range(4):
            train(model, optimizer, [step], ema)
            if applies:
                with ema.applied():
                    model.eval()(torch.ones(2, 1, 4, 4))
                model.train()
        states.append({**copies(model.state_dict()), **{f"ema.{key}": item for key, item in ema.tensors.items()}})
    assert same(*states)


def test_lookahead_by_hand() -> None:
    model = Walk()
    lookahead = Lookahead(model, LookaheadConfig(every_steps=2, alpha=0.25))
    seen: list[tuple[float, float]] = []
    for step in range(1, 7):
        model.go(lookahead, to=[model.weight.item() + 4.0], start=step)
        seen.append((model.weight.item(), lookahead.tensors["weight"].item()))
    assert seen == [(4, 0), (2, 2), (6, 2), (4, 4), (8, 4), (6, 6)]
    assert lookahead.tensors.keys() == {"weight"}
    assert model.mean.item() == 24.0  # buffers are not Lookahead's


def test_the_average_follows_the_weights_after_lookahead() -> None:
    model = Walk()
    lookahead = Lookahead(model, LookaheadConfig(every_steps=1, alpha=0.5))
    ema = ExponentialAverage(model, EmaConfig(decay=0.0, ramp=0))
    model.go(lookahead, ema, to=[8.0])
    assert model.weight.item() == 4.0
    assert ema.tensors["weight"].item() == 4.0


@pytest.mark.parametrize("cut", [1, 4, 5])
def test_resumed_averages_equal_uninterrupted_ones(cut: int) -> None:
    def make() -> tuple[Net, Optimizer, Lookahead, ExponentialAverage]:
        model, optimizer = net()
        lookahead = Lookahead(model, LookaheadConfig(every_steps=3, alpha=0.5))
        return model, optimizer, lookahead, ExponentialAverage(model, EmaConfig(decay=0.9, ramp=5))

    whole, optimizer, whole_lookahead, whole_ema = make()
    train(whole, optimizer, range(10), whole_lookahead, whole_ema)

    first, optimizer, lookahead, ema = make()
    train(first, optimizer, range(cut), lookahead, ema)
    state = saved(
        {
            "model": first.state_dict(),
            "optimizer": optimizer.state_dict(),
            "lookahead": lookahead.tensors,
            "ema": ema.tensors,
        }
    )
    second, optimizer, lookahead, ema = make()
    second.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    for part, name in ((lookahead, "lookahead"), (ema, "ema")):
        for key, tensor in part.tensors.items():
            tensor.copy_(state[name][key])
    train(second, optimizer, range(cut, 10), lookahead, ema)

    assert same(copies(second.state_dict()), copies(whole.state_dict()))
    assert same(ema.tensors, whole_ema.tensors)
    assert same(lookahead.tensors, whole_lookahead.tensors)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_an_overflowed_step_changes_nothing(name: str, fused: bool) -> None:
    model, _ = net()
    config = OptimizerConfig.model_validate({"name": name, "fused": fused})
    optimizer = make_optimizer(model, config, lr=0.01, device=CPU)
    lookahead = Lookahead(model, LookaheadConfig(every_steps=2, alpha=0.5))
    ema = ExponentialAverage(model, EmaConfig(decay=0.5, ramp=0))
    precision = Precision("fp16", CPU)

    def step(number: int, factor: float) -> None:
        assert precision.scale is not None
        optimizer.zero_grad()
        loss = model(torch.ones(2, 1, 4, 4)).square().mean() * factor
        loss.backward(precision.scale)
        precision.unscale(optimizer)
        norm = get_total_norm([item.grad for item in model.parameters() if item.grad is not None])
        skipped = take_step(optimizer, norm=norm)
        precision.update(skipped)
        for average in (lookahead, ema):
            average.update(number, skipped=skipped)

    def state() -> dict[str, Tensor]:
        moments = optimizer.state_dict()["state"]
        return copies(
            {f"model.{key}": item for key, item in model.named_parameters()}
            | {f"ema.{key}": item for key, item in ema.tensors.items() if item.is_floating_point()}
            | {f"slow.{key}": item for key, item in lookahead.tensors.items()}
            | {
                f"{at}.{key}": item
                for at, moment in moments.items()
                for key, item in moment.items()
                if item is not None
            }
        )

    step(1, 1.0)
    before, scale = state(), precision.state_dict()["scale"]
    step(2, 1e38)
    assert precision.state_dict() == {"scale": scale / 2, "_growth_tracker": 0}
    assert same(state(), before)
    step(3, 1.0)
    assert not same(state(), before)
    assert precision.state_dict() == {"scale": scale / 2, "_growth_tracker": 1}


def test_lookahead_waits_for_the_next_time_if_its_step_was_skipped() -> None:
    model = Walk()
    lookahead = Lookahead(model, LookaheadConfig(every_steps=2, alpha=0.25))
    model.go(lookahead, to=[8.0])
    lookahead.update(2, skipped=SKIPPED)
    assert (model.weight.item(), lookahead.tensors["weight"].item()) == (8, 0)
    lookahead.update(3, skipped=TAKEN)
    lookahead.update(4, skipped=TAKEN)
    assert (model.weight.item(), lookahead.tensors["weight"].item()) == (2, 2)


class Recorded(TorchDispatchMode):
    """Records the operations on the device."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "aten":
            self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def test_an_update_is_a_few_operations_and_does_not_wait() -> None:
    model, _ = net()
    lookahead, ema = Lookahead(model, LookaheadConfig(every_steps=1)), ExponentialAverage(model, EmaConfig())
    with Recorded() as recorded:
        lookahead.update(1, skipped=TAKEN)
        ema.update(1, skipped=TAKEN)
    moved = ["_foreach_sub", "_foreach_mul_", "_foreach_add_"]
    replaced = ["_foreach_mul", "_foreach_mul_", "_foreach_add_"]
    assert [name for name in recorded.names if name.startswith("_foreach")] == [*moved, *replaced, *moved]
    assert len(recorded.names) == 15
    assert "_local_scalar_dense" not in recorded.names


def sharded_average() -> dict[str, Any]:
    """Trains the shards of a model on the same data on each rank. Returns the whole result."""
    from torch.distributed.fsdp import fully_shard  # imported here, as it takes seconds
    from torch.distributed.tensor import DTensor

    distributed.init_process_group("gloo")
    model, after = averaged_run(lambda model: fully_shard(model))  # noqa: PLW0108 it returns another type
    assert all(isinstance(parameter, DTensor) for parameter in model.parameters())
    whole = {key: item.full_tensor() if isinstance(item, DTensor) else item for key, item in after.items()}
    distributed.barrier()
    distributed.destroy_process_group()
    return whole


def averaged_run(wrap: Callable[[nn.Module], object]) -> tuple[nn.Module, dict[str, Tensor]]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5), nn.Linear(5, 1)).double()
    model[0].bias.requires_grad_(False)
    model.register_buffer("mean", torch.zeros(2, dtype=torch.float64))
    wrap(model)
    optimizer = torch.optim.SGD((item for item in model.parameters() if item.requires_grad), lr=0.1)
    lookahead = Lookahead(model, LookaheadConfig(every_steps=2, alpha=0.5))
    ema = ExponentialAverage(model, EmaConfig(decay=0.5, ramp=0))
    inputs = torch.arange(12, dtype=torch.float64).reshape(4, 3)
    outputs: list[Tensor] = []
    for step in range(1, 6):
        optimizer.zero_grad()
        model.get_buffer("mean").add_(1.0)
        model(inputs).square().mean().backward()
        optimizer.step()
        for average in (lookahead, ema):
            average.update(step, skipped=TAKEN)
        outputs.append(evaluated(model, inputs))
        with ema.applied():
            outputs.append(evaluated(model, inputs))
        outputs.append(evaluated(model, inputs))
    after = copies({f"ema.{key}": item for key, item in ema.tensors.items()})
    after |= copies({f"slow.{key}": item for key, item in lookahead.tensors.items()})
    after |= copies({f"model.{key}": item for key, item in model.state_dict().items()})
    return model, {**after, "outputs": torch.stack(outputs)}


def evaluated(model: nn.Module, inputs: Tensor) -> Tensor:
    with torch.inference_mode():
        return model(inputs)


def test_shards_are_averaged_like_whole_tensors() -> None:
    _, alone = averaged_run(copy.copy)
    for rank in results(on_ranks(2, sharded_average)):
        assert rank.keys() == alone.keys()
        for key, expected in alone.items():
            torch.testing.assert_close(rank[key], expected, rtol=1e-9, atol=1e-12)
