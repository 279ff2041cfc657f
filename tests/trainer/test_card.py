"""The model card: FLOPs against closed forms. Counting does not change the model."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.trainer.ranks import recipe
from torchyard.contract.attempts.records import Manifest
from trainer import forward
from trainer.card import Card, describe, of_checkpoint, peak_memory, versions
from trainer.forward import MOST_PASSES, flops, inference_seconds
from trainer.recipes.classification import Classifier, make_task
from trainer.sampler import TrainSampler
from trainer.weights.initial import freeze, train_mode
from trainer.world import World

CPU = torch.device("cpu")


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        return self.layer(*[inputs["x"]] * 3, need_weights=False)[0]


@pytest.mark.parametrize(
    ("model", "inputs", "expected"),
    [
        (nn.Linear(10, 7), torch.zeros(1, 10), 2 * 10 * 7),
        (nn.Conv2d(3, 4, 3, padding=1), torch.zeros(1, 3, 8, 6), 2 * 8 * 6 * 4 * 3 * 9),
        (nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(12, 2)), torch.zeros(1, 3, 4), 2 * 12 * 2),
        # Four projections of 5 tokens, and two products of every token with every token.
        (Attention(), {"x": torch.zeros(1, 5, 8)}, 2 * (4 * 5 * 8 * 8 + 2 * 5 * 5 * 8)),
    ],
)
def test_the_products_of_a_forward_pass_are_counted(model: nn.Module, inputs: Any, expected: int) -> None:
    assert flops(model, inputs) == expected


def test_counting_does_not_change_the_model_or_the_random_generators() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.BatchNorm1d(4), nn.Dropout())
    freeze(model, ["1"])
    train_mode(model)
    modes = [module.training for module in model.modules()]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    numbers = torch.random.get_rng_state()
    assert flops(model, torch.rand(1, 4).fill_(3)) == 2 * 16
    torch.random.set_rng_state(numbers)
    flops(model, torch.ones(1, 4))
    assert torch.equal(torch.random.get_rng_state(), numbers)
    assert [module.training for module in model.modules()] == modes == [True, True, False, True, True]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def card(*, rank: int = 0, **model: Any) -> tuple[Classifier, Card]:
    config = recipe(model=model, training={"per_device_batch_size": 16, "gradient_accumulation_steps": 3})
    classifier = make_task(config, source="digits", device=CPU)
    world = World(rank=rank, size=2, local_size=2, device=CPU)
    sampler = TrainSampler(classifier.samples, global_batch=96, batch_size=16, world_size=2, rank=rank)
    return classifier, describe(classifier, sampler=sampler, world=world, precision="fp32", data_hash="0123")


@pytest.mark.parametrize("classes", [10, 10_000])
def test_a_checkpoint_has_a_card_though_the_configuration_has_no_room_in_it(classes: int) -> None:
    _, found = card()
    config = recipe(loss={"class_weights": [0.123456789012345] * classes}).model_dump(mode="json")
    made = of_checkpoint(found.as_dict(), trainer="image-classification", config=config)
    assert Manifest(step=1, files=[], card=made).card is not None
    assert made["trainer"] == "image-classification"
    left_out = made.get("config_left_out")
    assert left_out == (None if classes == 10 else "loss: too large for a card, see state.pt")
    assert made["config"] == {name: values for name, values in config.items() if left_out is None or name != "loss"}


def test_a_card_describes_the_run() -> None:
    classifier, found = card(freeze=["features"])
    trainable = sum(
        parameter.numel() for name, parameter in classifier.model.named_parameters() if "classifier" in name
    )
    assert found.trainable_parameters == trainable < found.parameters
    assert found.global_batch == 16 * 3 * 2
    assert (found.world_size, found.device, found.precision) == (2, "CPU", "fp32")
    assert (found.data_hash, found.split_hash) == ("0123", classifier.data.split_hash)
    assert found.flops_per_sample == flops(classifier.model, classifier.example_inputs()) > 1000
    assert found.versions == versions()
    assert found.versions["torch"] == torch.__version__
    plain = found.as_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["samples_per_second"] is plain["peak_memory_bytes"] is None
    assert found.inference_seconds is not None
    assert found.inference_seconds > 0
    other = card(rank=1)[1]
    assert other.flops_per_sample is other.inference_seconds is None, "measured once, by the rank that reports it"


def test_a_card_names_the_base_of_an_adapter() -> None:
    classifier, plain = card()
    assert plain.adapter is None

    class Adapted(Classifier):
        @property
        def metadata(self) -> dict[str, Any]:
            base = {"digest": "0" * 64, "name": "small-base", "model_type": "llama"}
            return {"adapter": {"rank": 16, "alpha": 32.0, "dropout": 0.0, "targets": ["a", "b"], "base": base}}

    object.__setattr__(classifier, "__class__", Adapted)  # it is frozen
    world = World(rank=1, size=1, local_size=1, device=CPU)
    sampler = TrainSampler(classifier.samples, global_batch=8, batch_size=8, world_size=1, rank=0)
    found = describe(classifier, sampler=sampler, world=world, precision="fp32", data_hash=None)
    assert found.as_dict()["adapter"] == {"base": "small-base", "rank": 16, "alpha": 32.0, "layers": 2}


def test_flops_that_cannot_be_counted_are_none() -> None:
    classifier, _ = card()

    class Refuses(nn.Module):
        def forward(self, _: Tensor) -> Tensor:
            raise NotImplementedError

    classifier.model.add_module("features", Refuses())
    world = World(rank=0, size=1, local_size=1, device=CPU)
    found = describe(
        classifier,
        sampler=TrainSampler(100, global_batch=10, batch_size=10),
        world=world,
        precision="fp32",
        data_hash=None,
    )
    assert found.flops_per_sample is found.inference_seconds is None


class Timed(nn.Module):
    """Takes the time in `taken` for its passes, one after the other, by a clock that it sets."""

    def __init__(self, *taken: float) -> None:
        super().__init__()
        self.taken, self.now, self.weight = list(taken), 0.0, nn.Parameter(torch.ones(1))

    def forward(self, inputs: Tensor) -> Tensor:
        assert not self.training
        assert not torch.is_grad_enabled()
        torch.rand(1)
        self.now += self.taken.pop(0)
        return inputs

    def perf_counter(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("taken", "expected", "passes"),
    [([0.003, 0.001, 0.009, 0.002, 0.004, 1.0], 0.003, MOST_PASSES), ([0.02, 0.04, 1.0], 0.03, 2), ([0.3], 0.3, 1)],
)
def test_the_time_of_inference_is_the_median_of_few_passes(
    monkeypatch: pytest.MonkeyPatch, taken: list[float], expected: float, passes: int
) -> None:
    model = Timed(*taken)
    monkeypatch.setattr(forward, "time", model)
    numbers = torch.random.get_rng_state()
    assert inference_seconds(model, torch.ones(1)) == pytest.approx(expected)
    assert len(model.taken) == len(taken) - passes
    assert model.training
    assert torch.equal(torch.random.get_rng_state(), numbers)


def test_the_peak_memory_of_a_process_is_in_bytes() -> None:
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    assert peak_memory(CPU) == pytest.approx(int(line.split()[1]) * 1024, rel=0.05)
