"""What is advised about the ranks of a job together."""

from typing import Any

import pytest

from api.advice.judgement import judge
from tests.api.advice.facts import facts
from tests.approved import Approved
from torchyard.contract.advice import AdviceView
from torchyard.contract.recipes.entry import DATA_WAIT, RANK_LAG, RANK_WAIT, SLOWEST_RANK

GPUS = [{"utilization": 0.9}, {"utilization": 0.8}, {"utilization": 0.7}, {"utilization": 0.9}]
HEALTHY = "runs: 24% is done"


def waiting(lag: float = 0.4, rank: float = 2.0, mean: float = 0.35, **more: Any) -> AdviceView:
    metrics = {RANK_LAG: lag, SLOWEST_RANK: rank, RANK_WAIT: mean, **more.pop("metrics", {})}
    return judge(facts(metrics=metrics, gpus=more.pop("gpus", GPUS), **more))


@pytest.mark.parametrize("trainer", ["segmentation", "script"])
def test_the_rank_that_the_others_wait_for_is_named_with_its_device(trainer: str, approved: Approved) -> None:
    advice = waiting(trainer=trainer)
    assert advice.headline == approved("headline")
    assert advice.cause is not None
    assert advice.cause == approved("cause")
    assert [(item.kind, item.text, item.rank) for item in advice.evidence] == [
        ("metric", "wait/lag is 0.40", None),
        ("metric", "wait/mean is 0.35", None),
        ("utilization", approved("text"), 2),
    ]
    assert advice.severity == "warning"


def test_a_rank_of_a_pool_is_named_with_its_node(approved: Approved) -> None:
    devices = [{"worker": "wrk_1", "index": 3, "uuid": f"{node}", "name": "A100", "node": node, "host": f"n{node}"}
               for node in range(4)]  # fmt: skip
    advice = waiting(gpus=[], devices=devices)
    assert advice.cause is not None and advice.cause == approved("cause")


@pytest.mark.parametrize(
    ("lag", "rank"), [(0.19, 2), (float("nan"), 2), (7.0, 2), (0.4, 4), (0.4, -1), (0.4, 1.5), (0.4, float("nan"))]
)
def test_no_rank_is_blamed_for_a_small_lag_or_without_a_device(lag: float, rank: float) -> None:
    assert waiting(lag, rank).headline == HEALTHY


def test_a_wait_for_data_comes_before_the_rank_that_has_the_most_of_it(approved: Approved) -> None:
    advice = waiting(metrics={DATA_WAIT: 0.5}, gpus=[{"utilization": 0.2}] * 4)
    assert advice.headline == approved("headline")


@pytest.mark.parametrize(
    ("devices", "wait", "slower"),
    [
        (2, 0.6, True),
        (2, 0.5, False),
        (2, 1.0, True),
        (4, 0.6, False),
        (4, 0.8, True),
        (1, 0.9, False),
        (2, 3.0, False),
    ],
)
def test_devices_do_not_pay_where_they_compute_less_than_one_alone(devices: int, wait: float, slower: bool) -> None:
    advice = waiting(0.1, 0, wait, gpus=GPUS[:devices])
    assert advice.headline.startswith(f"{devices} devices are slower than one here" if slower else HEALTHY)


def test_one_device_is_advised_with_the_same_global_batch(approved: Approved) -> None:
    config = {"training": {"gradient_accumulation_steps": 3}}
    advice = waiting(0.1, 0, 0.62, gpus=GPUS[:2], config=config)
    assert advice.headline == approved("headline")
    assert advice.cause is not None
    assert advice.cause == approved("cause")
    assert advice.steps[0] == approved("steps")
    script = waiting(0.1, 0, 0.62, gpus=GPUS[:2], trainer="script")
    assert "training." not in " ".join(script.steps)


def scaled(state: str, scaling: str, batch: Any, **training: Any) -> AdviceView:
    config = {"optimizer": {"lr_scaling": scaling}, "training": {"epochs": 10, "per_device_batch_size": 32, **training}}
    return judge(facts(state, config=config, card={"global_batch": batch}))


@pytest.mark.parametrize("state", ["running", "succeeded"])
@pytest.mark.parametrize("scaling", ["linear", "sqrt"])
def test_more_epochs_are_advised_where_the_rate_was_scaled_to_a_larger_batch(
    state: str, scaling: str, approved: Approved
) -> None:
    advice = scaled(state, scaling, 128)
    assert advice.severity == "info"
    assert advice.steps[-1] == approved("steps")


@pytest.mark.parametrize(
    ("scaling", "batch", "training"),
    [
        ("none", 128, {}),
        ("linear", 32, {}),
        ("linear", 63, {}),
        ("linear", "128", {}),
        ("linear", None, {}),
        ("linear", 128, {"max_steps": 100}),
    ],
)
def test_no_epochs_are_advised_otherwise(scaling: str, batch: Any, training: dict[str, Any]) -> None:
    assert scaled("succeeded", scaling, batch, **training).steps == []


def test_a_script_may_have_any_card() -> None:
    assert judge(facts("succeeded", trainer="script", card={"global_batch": 128})).steps == []
