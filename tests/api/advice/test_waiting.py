"""What is advised about jobs that do not run."""

from typing import Any

import pytest

from api.advice.judgement import judge
from tests.api.advice.facts import GIB, NOW, facts, worker
from tests.approved import Approved
from torchyard.contract.cluster.devices import PoolNodes, PoolReport
from torchyard.contract.cluster.views import PoolView

HELD = {"holder": {"owner": "bob", "state": "running", "since": NOW}}
FREE: dict[str, Any] = {}
_REPORT = PoolReport(partition="main", kind="cuda", nodes=PoolNodes(count=2, devices=4)).to_dict()
POOL = worker(name="gpu").model_copy(update={"pool": PoolView.model_validate(_REPORT)})


@pytest.mark.parametrize(
    ("code", "resources", "workers"),
    [
        ("devices_busy", {"devices_per_node": 2}, [worker(FREE, HELD), worker(HELD, HELD, name="box-b")]),
        ("devices_busy", {"devices_per_node": 2}, [worker(HELD, {"blocked": "held by pid 7"})]),
        ("devices_busy", {}, [worker(HELD, state="draining")]),
        ("devices_busy", {"devices_per_node": 2}, [worker(FREE, HELD, kept=True)]),
        ("devices_busy", {}, [worker(FREE, HELD, kept=True)]),
        ("devices_busy", {"cpus": 8}, [worker(FREE, cpus=8)]),
        ("reserved", {"devices_per_node": 2}, [worker(FREE, HELD, kept=True)]),
        ("preempting", {}, [worker(HELD)]),
        ("too_big", {"cpus": 64, "memory_gb": 32}, [worker(FREE, cpus=8, memory_gb=31.5), worker(cpus=16)]),
        ("too_big", {"cpus": 64}, [worker(FREE)]),
        ("too_big", {"devices_per_node": 8}, [worker(FREE, HELD), worker(HELD, name="box-b")]),
        ("no_such_device", {"device": "cuda"}, [worker({"kind": "cpu"})]),
        ("no_such_device", {"min_memory_gb": 141}, [worker({"memory_bytes": int(79.6 * GIB)})]),
        ("no_such_device", {"gpu": ["H100", "B200"]}, [worker({"kind": "cpu"})]),
        ("no_such_device", {"gpu": ["H100"]}, [worker({"name": "NVIDIA A100-SXM4-80GB"})]),
        ("no_such_device", {}, []),
        ("no_such_device", {}, [worker(FREE, state="lost")]),
        ("waiting", {}, []),
        ("waiting", {}, [worker(FREE)]),
        ("waiting", {}, [POOL]),
        ("pool_next", {"pool": "gpu"}, [POOL]),
        ("pool_away", {"pool": "gpu"}, [POOL]),
        ("pool_ahead", {"pool": "gpu"}, [POOL]),
    ],
)  # fmt: skip
def test_a_queued_job_is_told_what_would_let_it_start(
    code: str, resources: dict[str, Any], workers: list[Any], approved: Approved
) -> None:
    advice = judge(facts("queued", reason=(code, "needs it"), spec={"resources": resources}, workers=workers))
    assert advice.headline.startswith("waits")
    assert (advice.cause, "\n".join(advice.steps)) == ("needs it", approved.of_row("steps"))
    assert advice.severity == ("warning" if code in {"too_big", "no_such_device"} else "info")


def test_a_job_over_its_quota_starts_after_others(approved: Approved) -> None:
    advice = judge(facts("queued", reason=("quota", "over it")))
    assert (advice.headline, advice.cause) == (approved("headline"), "over it")
    assert advice.steps == [approved("steps")]


def test_a_paused_job_says_where_it_goes_on(approved: Approved) -> None:
    advice = judge(facts("paused", reason=("paused", "paused by its owner"), checkpoint_step=40))
    assert advice.headline == approved("headline")
    assert advice.steps == [approved("steps")]


def test_a_job_that_succeeded_says_how_good_it_is_and_where(approved: Approved) -> None:
    best = {"metric": "val/iou", "value": 0.7134, "epoch": 7, "step": 1710, "checkpoint_id": "ckpt_1"}
    advice = judge(facts("succeeded", best=best))
    assert (advice.headline, advice.severity) == (approved("headline"), "info")
    assert [item.text for item in advice.evidence] == [approved("text")]
    assert "ckpt_1" in advice.steps[0]
    assert judge(facts("succeeded")).model_dump(exclude={"headline"}) == {
        "cause": None,
        "evidence": [],
        "steps": [],
        "severity": "info",
        "starts_if": [],
        "metric_pattern": None,
        "silent_s": None,
    }


def test_a_cancelled_job_says_who_cancelled_it(approved: Approved) -> None:
    advice = judge(facts("cancelled", reason=("cancelled", "cancelled by its owner")))
    assert advice.headline == approved("headline")
    assert advice.steps[0] == approved("steps")


def test_a_job_that_waits_for_others_is_told_for_which_and_for_what(approved: Approved) -> None:
    after: list[dict[str, Any]] = [
        {"job_id": "job_1", "name": "prep", "on": "succeeded", "state": "running"},
        {"job_id": "job_2", "name": "done", "on": "succeeded", "state": "succeeded"},
        {"job_id": "job_3", "name": None, "on": "failed", "state": None},
    ]
    advice = judge(facts("queued", reason=("waits_for_jobs", "waits for prep"), after=after))
    assert (advice.headline, advice.cause) == (approved("headline"), "waits for prep")
    assert "\n".join(advice.steps) == approved("steps")
