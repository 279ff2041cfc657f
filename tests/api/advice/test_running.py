"""What is advised about jobs that run."""

from datetime import timedelta
import math
from typing import Any

import pytest

from api.advice.judgement import judge
from tests.api.advice.facts import GIB, JOB, facts, worker
from tests.approved import Approved
from torchyard.contract.advice import AdviceView
from torchyard.contract.cluster.views import WorkerView
from torchyard.contract.recipes.entry import DATA_WAIT


def starving(
    workers: Any = 3,
    *,
    wait: float = 0.61,
    used: float | None = 0.38,
    seen: list[WorkerView] | None = None,
    **more: Any,
) -> AdviceView:
    config = {"data": {"workers": workers}}
    metrics = {DATA_WAIT: wait, "train/loss": 0.5}
    return judge(facts(config=config, metrics=metrics, gpus=[{"utilization": used}], workers=seen, **more))


def test_a_gpu_that_waits_for_the_loader_is_told_how_many_processes_are_fast_enough(approved: Approved) -> None:
    advice = starving()
    assert advice.headline == approved("headline")
    assert [(item.kind, item.text) for item in advice.evidence] == [
        ("metric", "time/data_wait is 0.61"),
        ("utilization", approved("text")),
    ]
    assert (advice.steps, advice.severity) == ([approved("set data workers")], "warning")


@pytest.mark.parametrize(
    ("workers", "wait", "cpus"),
    [
        (0, 0.61, 16),  # 1.6 times as long as the computation
        (0, 0.4, 16),
        (4, 0.5, 16),
        (4, 0.5, None),
        (4, 0.5, 6),  # there are no more CPUs
        (4, 1.0, 1000),
        ("auto", 0.5, 16),
        ("auto", 0.5, None),
        ("auto", 0.5, 4),
        (8, 0.5, 8),
    ],
)
def test_the_number_of_loader_processes_follows_from_the_wait(
    workers: Any, wait: float, cpus: int | None, approved: Approved
) -> None:
    assert starving(workers, wait=wait, cpus=cpus).steps[0] == approved.of_row("steps")


def test_ranks_share_the_cpus(approved: Approved) -> None:
    gpus = [{"utilization": 0.2}, {"utilization": 0.4}]
    more: dict[str, Any] = {"config": {"data": {"workers": 4}}, "metrics": {DATA_WAIT: 0.5}, "cpus": 12}
    assert judge(facts(gpus=gpus, **more)).headline == approved("headline")


def test_other_devices_of_the_host_have_their_share_of_the_cpus(approved: Approved) -> None:
    mine, other = {"utilization": 0.2, "job_id": JOB}, {"job_id": "job_2"}
    advice = starving("auto", wait=0.5, seen=[worker(mine, other, other, other, cpus=16)])
    assert advice.steps[0] == approved("make samples cheaper")
    assert starving("auto", wait=0.5, spec={"resources": {"cpus": 3}}).steps[0] == approved("share cpus already")
    assert starving(1, wait=0.5, spec={"resources": {"cpus": 3}}).steps == [approved("steps")]


def test_devices_without_utilization_are_judged_by_the_wait_alone(approved: Approved) -> None:
    assert starving(used=None).headline == approved("headline")


@pytest.mark.parametrize(("wait", "used"), [(0.61, 0.95), (0.1, 0.5), (0.29, None), (math.nan, 0.5), (7.0, 0.5)])
def test_no_wait_is_claimed_that_does_not_cost(wait: float, used: float | None) -> None:
    assert starving(wait=wait, used=used).headline == "runs: 24% is done"


def test_a_script_without_loader_settings_gets_no_setting(approved: Approved) -> None:
    advice = judge(facts(trainer="script", metrics={DATA_WAIT: 0.5}, gpus=[{"utilization": 0.1}]))
    assert advice.headline == approved("headline")
    assert "data.workers" not in " ".join(advice.steps)


def test_small_batches_may_grow_into_memory_that_is_free(approved: Approved) -> None:
    gpu = {"utilization": 0.3, "memory_used_bytes": 20 * GIB}
    training = {"per_device_batch_size": 8, "gradient_accumulation_steps": 4}
    advice = judge(facts(config={"training": training}, metrics={DATA_WAIT: 0.01}, gpus=[gpu]))
    assert advice.headline == approved("headline")
    assert advice.steps[0] == approved("steps")
    assert "cuda 0: 20.0 of 80.0 GiB are used" in [item.text for item in advice.evidence]
    full = {**gpu, "memory_used_bytes": 70 * GIB}
    assert judge(facts(metrics={DATA_WAIT: 0.01}, gpus=[full])).headline == "runs: 24% is done"


def test_an_idle_gpu_says_what_it_waits_for_or_that_nobody_knows(approved: Approved) -> None:
    idle = [{"utilization": 0.0}]
    starting = judge(facts("starting", reason=("starting", "installing 12 packages"), gpus=idle))
    assert (starting.headline, starting.cause) == (
        "starting: installing 12 packages",
        approved("devices wait installing"),
    )
    stopping = judge(facts(reason=("stopping", "pause requested"), gpus=idle))
    assert stopping.cause == approved("cause")
    early = judge(facts(gpus=idle, silence=None))
    assert early.headline == approved("headline")
    unknown = judge(facts(trainer="script", gpus=idle, metrics={"loss": 1.0}))
    assert unknown.headline == approved("nothing that job")
    assert unknown.cause is None


def test_a_worker_that_is_lost_shows_no_utilization() -> None:
    found = facts(gpus=[{"utilization": 0.0}], metrics={DATA_WAIT: 0.0})
    lost = [worker.model_copy(update={"state": "lost"}) for worker in found.workers]
    assert judge(facts(workers=lost)).headline == "runs: 24% is done"


@pytest.mark.parametrize(
    ("stall_timeout", "silence", "stalls"),
    [("10m", 7, True), ("10m", 5, False), ("10m", None, False), ("1m", 1, False), ("1h", 30, False), ("1h", 40, True)],
)
def test_a_job_stalls_that_is_silent_for_most_of_its_stall_timeout(
    stall_timeout: str, silence: int | None, stalls: bool
) -> None:
    quiet = None if silence is None else timedelta(minutes=silence, seconds=5)
    advice = judge(facts(silence=quiet, spec={"stall_timeout": stall_timeout}))
    assert advice.silent_s == (None if silence is None else 60 * silence + 5)
    assert (advice.severity == "warning") is stalls
    if stalls:
        assert advice.headline == f"no progress for {silence}m: after {stall_timeout} the attempt ends as a hang"
        assert [item.text for item in advice.evidence] == ["the newest progress is step 120"]
        assert "stacks" in advice.steps[0]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_comes_before_the_utilization(value: float, approved: Approved) -> None:
    advice = judge(facts(metrics={"train/loss": value, DATA_WAIT: 0.9}, gpus=[{"utilization": 0.1}]))
    assert (advice.headline, advice.severity) == (approved("headline"), "warning")
    assert [item.text for item in advice.evidence] == [f"train/loss is {value}"]
    assert advice.steps[0] == approved("steps")


@pytest.mark.parametrize("used", [0.0, 0.04, 0.5])
def test_a_cpu_slot_is_not_blamed_for_its_share_of_the_hosts_cpus(used: float, approved: Approved) -> None:
    cpu = {"kind": "cpu", "utilization": used}
    advice = judge(facts(trainer="script", metrics={"loss": 1.0}, gpus=[cpu]))
    assert (advice.headline, advice.severity, advice.evidence) == ("runs: 24% is done", "info", [])
    waits = judge(facts(metrics={DATA_WAIT: 0.61}, gpus=[cpu]))
    assert waits.headline == approved("headline")
