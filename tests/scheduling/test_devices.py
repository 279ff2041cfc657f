"""Which devices a job gets, and the reason of a waiting job."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from scheduling.devices import choose_victims, pick_devices
from scheduling.reasons import Explainer
from scheduling.snapshot import Device, Host, Running
from torchyard.contract.job import Reason
from torchyard.contract.spec import Resources

GIB = 1 << 30


def gpu(index: int, *, memory: int = 80, job: str | None = None, blocked: str | None = None) -> Device:
    return Device(
        index=index,
        uuid=f"GPU-{index}",
        name="H200",
        kind="cuda",
        memory_bytes=memory * GIB,
        job_id=job,
        blocked=blocked,
    )


def slot(index: int, *, job: str | None = None) -> Device:
    return Device(index=index, uuid=f"cpu-{index}", name="CPU slot", kind="cpu", job_id=job)


def host(name: str, devices: Sequence[Device], *, draining: bool = False) -> Host:
    return Host(f"wrk_{name}", name, tuple(devices), draining)


def explain(resources: Resources, hosts: Sequence[Host], preemptors: Mapping[str, str] | None = None) -> Reason:
    return Explainer(hosts, preemptors or {}).explain(resources)


def uuids(devices: list[Device] | None) -> list[str] | None:
    return None if devices is None else [device.uuid for device in devices]


def test_a_job_gets_all_its_devices_or_none() -> None:
    devices = [gpu(2), gpu(0), gpu(1, job="job_a")]
    assert uuids(pick_devices(Resources(devices_per_node=2), devices)) == ["GPU-0", "GPU-2"]
    assert pick_devices(Resources(devices_per_node=3), devices) is None


def test_auto_means_gpus_if_there_are_any() -> None:
    mixed = [slot(0), slot(1), gpu(0, job="job_a")]
    assert pick_devices(Resources(device="auto"), mixed) is None
    assert uuids(pick_devices(Resources(device="cpu"), mixed)) == ["cpu-0"]
    assert uuids(pick_devices(Resources(device="auto"), [slot(0, job="job_a"), slot(1)])) == ["cpu-1"]
    assert pick_devices(Resources(device="cuda"), [slot(0)]) is None


def test_a_gpu_that_is_too_small_or_blocked_is_not_offered() -> None:
    devices = [gpu(0, memory=24), gpu(1, blocked="GPU 1 is held by pid 7 (21 GiB), not ours"), gpu(2)]
    assert uuids(pick_devices(Resources(min_memory_gb=40), devices)) == ["GPU-2"]
    assert pick_devices(Resources(devices_per_node=2, min_memory_gb=40), devices) is None


@pytest.mark.parametrize(
    ("resources", "hosts", "code", "message"),
    [
        (
            Resources(devices_per_node=2, device="cuda"),
            [
                host(
                    "box-a",
                    [gpu(0), gpu(1, job="job_a"), gpu(3, blocked="GPU 3 is held by pid 4121 (21 GiB), not ours")],
                )
            ],
            "devices_busy",
            "needs 2 GPUs; 1 free on box-a; GPU 3 is held by pid 4121 (21 GiB), not ours",
        ),
        (
            Resources(devices_per_node=64),
            [host("box-a", [slot(0), slot(1)]), host("box-b", [slot(0)])],
            "too_big",
            "needs 64 devices; the largest worker, box-a, has 2",
        ),
        (Resources(device="cuda"), [host("box-a", [slot(0)])], "no_such_device", "needs 1 GPU; no worker has any"),
        (Resources(), [], "no_such_device", "needs 1 device; no worker has any"),
        (
            Resources(device="cuda", min_memory_gb=40.5),
            [host("box-a", [gpu(0, memory=24)])],
            "no_such_device",
            "needs 1 GPU of at least 40.5 GiB; no worker has any",
        ),
        (
            Resources(devices_per_node=2, device="cpu"),
            [host("box-a", [slot(0), slot(1, job="job_a")]), host("box-b", [slot(0, job="j"), slot(1, job="j")])],
            "devices_busy",
            "needs 2 CPU slots; 1 free on box-a; 0 free on box-b",
        ),
    ],
)
def test_the_reason_names_what_is_missing(resources: Resources, hosts: list[Host], code: str, message: str) -> None:
    reason = explain(resources, hosts)
    assert (reason.code, reason.message) == (code, message)


def test_two_workers_with_the_same_name_are_both_counted() -> None:
    hosts = [host("box", [slot(0, job="j")]), host("box", [slot(0)])]
    assert explain(Resources(device="cpu"), hosts).message == "needs 1 CPU slot; 0 free on box; 1 free on box"


def holder(job_id: str, *, priority: int = 0, since: int = 0) -> Running:
    return Running(job_id, "ada", priority, preemptible=True, since=since, stopping=False)


def test_as_few_jobs_as_possible_are_preempted_the_lowest_priority_and_the_youngest_first() -> None:
    devices = [slot(0), slot(1, job="old"), slot(2, job="young"), slot(3, job="mid"), slot(4, job="big")]
    devices += [slot(5, job="big"), slot(6, job="another's")]
    candidates = [holder("old"), holder("young", since=9), holder("mid", priority=1), holder("big", priority=2)]

    def victims(count: int) -> list[str]:
        return [victim.job_id for victim in choose_victims(Resources(devices_per_node=count), devices, candidates)]

    assert victims(2) == ["young"]
    assert victims(3) == ["young", "old"]
    assert victims(6) == ["young", "old", "mid", "big"]
    assert victims(7) == []
    # The big job alone is enough, so the small ones before it are not preempted.
    alone = [slot(0, job="old"), *(slot(index, job="big") for index in range(1, 4))]
    assert choose_victims(Resources(devices_per_node=3), alone, candidates) == [candidates[-1]]


def test_a_job_without_suitable_devices_is_not_preempted() -> None:
    devices = [gpu(0, memory=24, job="small"), gpu(1, job="large"), gpu(2, blocked="in quarantine"), slot(0, job="cpu")]
    candidates = [holder("small"), holder("cpu"), holder("large", priority=1)]
    assert choose_victims(Resources(min_memory_gb=40), devices, candidates) == [candidates[-1]]
    assert choose_victims(Resources(devices_per_node=2, min_memory_gb=40), devices, candidates) == []
    devices[2] = replace(devices[2], returning=True)
    assert choose_victims(Resources(min_memory_gb=40), devices, candidates) == [], "one is free soon"
    assert choose_victims(Resources(devices_per_node=2, min_memory_gb=40), devices, candidates) == [candidates[-1]]


def test_the_reason_names_a_draining_worker() -> None:
    hosts = [host("box-a", [slot(0), slot(1)], draining=True), host("box-b", [slot(0, job="job_a"), slot(1)])]
    reason = explain(Resources(devices_per_node=2), hosts)
    assert reason.message == "needs 2 devices; box-a is draining; 1 free on box-b"


def test_the_same_problem_of_several_devices_is_named_once() -> None:
    full = "worker box-a has no free disk space"
    box = host("box-a", [gpu(0, job="job_a"), gpu(1, blocked=full), gpu(2, blocked=full)])
    assert explain(Resources(), [box]).message == f"needs 1 device; 0 free on box-a; {full}"


def test_the_reason_names_the_preemptor_of_suitable_devices_only() -> None:
    hosts = [host("box-a", [slot(0, job="job_a"), slot(1), gpu(0)]), host("box-b", [slot(0, job="job_b")])]
    preemptors = {"job_a": "zoe", "job_b": "yan"}
    assert explain(Resources(device="cpu"), hosts, preemptors).message == (
        "needs 1 CPU slot; 1 free on box-a, where devices are reserved for a job of zoe;"
        " 0 free on box-b, where devices are reserved for a job of yan"
    )
    assert explain(Resources(device="cuda"), hosts, preemptors).message == "needs 1 GPU; 1 free on box-a"
