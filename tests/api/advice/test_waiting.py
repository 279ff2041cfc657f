"""What is advised about jobs that do not run."""

from typing import Any

import pytest

from api.advice.judgement import judge
from tests.api.advice.facts import GIB, NOW, facts, worker
from tests.approved import Approved
from torchyard.contract.devices import PoolNodes, PoolReport
from torchyard.contract.views.cluster import PoolView

HELD = {"holder": {"owner": "bob", "state": "running", "since": NOW}}
FREE: dict[str, Any] = {}
_REPORT = PoolReport(partition="main", kind="cuda", nodes=PoolNodes(count=2, devices=4)).to_dict()
POOL = worker(name="gpu").model_copy(update={"pool": PoolView.model_validate(_REPORT)})


@pytest.mark.parametrize(
    ("code", "resources", "workers", "steps"),
    [
        ("devices_busy", {"devices_per_node": 2}, [worker(FREE, HELD), worker(HELD, HELD, name="box-b")],
         ["It starts when one more device of box-a is free.",
          "With resources.devices_per_node 1 it would fit on box-a now."]),
        ("devices_busy", {"devices_per_node": 2}, [worker(HELD, {"blocked": "held by pid 7"})],
         ["It starts when 2 more devices of box-a are free."]),
        ("devices_busy", {}, [worker(HELD, state="draining")],
         ["It starts when a worker that is large enough takes jobs again: those that are drain."]),
        ("devices_busy", {"devices_per_node": 2}, [worker(FREE, HELD, kept=True)],
         ["It starts when one more device of box-a is free and not kept for another job."]),
        ("devices_busy", {}, [worker(FREE, HELD, kept=True)],
         ["With a shorter time_limit it may start before the job for which box-a is kept."]),
        ("devices_busy", {"cpus": 8}, [worker(FREE, cpus=8)], []),
        ("reserved", {"devices_per_node": 2}, [worker(FREE, HELD, kept=True)], []),
        ("preempting", {}, [worker(HELD)], []),
        ("too_big", {"cpus": 64, "memory_gb": 32}, [worker(FREE, cpus=8, memory_gb=31.5), worker(cpus=16)],
         ["Set resources.cpus to at most 16: no worker has more.",
          "Set resources.memory_gb to at most 31.5: no worker has more."]),
        ("too_big", {"cpus": 64}, [worker(FREE)], []),
        ("too_big", {"devices_per_node": 8}, [worker(FREE, HELD), worker(HELD, name="box-b")],
         ["Set resources.devices_per_node to at most 2."]),
        ("no_such_device", {"device": "cuda"}, [worker({"kind": "cpu"})],
         ["Set resources.device to cpu: the workers have such devices."]),
        ("no_such_device", {"min_memory_gb": 141}, [worker({"memory_bytes": int(79.6 * GIB)})],
         ["Set resources.min_memory_gb to at most 79: no device has more."]),
        ("no_such_device", {"gpu": ["H100", "B200"]}, [worker({"kind": "cpu"})],
         ["Start a worker with H100 or B200: none has a GPU."]),
        ("no_such_device", {"gpu": ["H100"]}, [worker({"name": "NVIDIA A100-SXM4-80GB"})],
         ["Set resources.gpu to names of what the workers have: NVIDIA A100-SXM4-80GB."]),
        ("no_such_device", {}, [], ["Start a worker: none is running."]),
        ("no_such_device", {}, [worker(FREE, state="lost")], ["Start a worker: none is running."]),
        ("waiting", {}, [], ["Start a worker: none is running."]),
        ("waiting", {}, [worker(FREE)], []),
        ("waiting", {}, [POOL], ["Start a worker: none is running."]),
        ("pool_next", {"pool": "gpu"}, [POOL], []),
        ("pool_away", {"pool": "gpu"}, [POOL], []),
        ("pool_ahead", {"pool": "gpu"}, [POOL],
         ["It is given to the pool when one of its owner's jobs there starts to run, or has ended."]),
    ],
)  # fmt: skip
def test_a_queued_job_is_told_what_would_let_it_start(
    code: str, resources: dict[str, Any], workers: list[Any], steps: list[str]
) -> None:
    advice = judge(facts("queued", reason=(code, "needs it"), spec={"resources": resources}, workers=workers))
    assert advice.headline.startswith("waits")
    assert (advice.cause, advice.steps) == ("needs it", steps)
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
    }


def test_a_cancelled_job_says_who_cancelled_it(approved: Approved) -> None:
    advice = judge(facts("cancelled", reason=("cancelled", "cancelled by its owner")))
    assert advice.headline == approved("headline")
    assert "begins at the start" in advice.steps[0]


def test_a_job_that_waits_for_others_is_told_for_which_and_for_what(approved: Approved) -> None:
    after: list[dict[str, Any]] = [
        {"job_id": "job_1", "name": "prep", "on": "succeeded", "state": "running"},
        {"job_id": "job_2", "name": "done", "on": "succeeded", "state": "succeeded"},
        {"job_id": "job_3", "name": None, "on": "failed", "state": None},
    ]
    advice = judge(facts("queued", reason=("waits_for_jobs", "waits for prep"), after=after))
    assert (advice.headline, advice.cause) == (approved("headline"), "waits for prep")
    assert "\n".join(advice.steps) == approved("steps")
