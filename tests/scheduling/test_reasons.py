"""Why jobs wait, and where they start."""

from dataclasses import replace

import pytest

from scheduling.plan import plan
from scheduling.snapshot import Host, OwnerUse
from tests.approved import Approved
from tests.scheduling.clusters import HERE, HOUR, NOW, gpu, host, runs, seen, slots, starts, waits
from torchyard.contract.cluster.fitting import is_named
from torchyard.contract.spec.resources import Resources
from torchyard.contract.states import Reason


def explain(resources: Resources, *hosts: Host) -> Reason:
    """Returns the reason of a job behind another of the same request: for that one a place may be kept."""
    line = [waits(name, owner=name, resources=resources) for name in ("job_1", "job_2")]
    return plan(seen(*line, hosts=hosts)).reasons.by_shape[line[1].shape]


@pytest.mark.parametrize(
    ("resources", "hosts", "code"),
    [
        (Resources(devices_per_node=64), [host(slots(None, None)), host(slots(None), "there")], "too_big"),
        (Resources(device="cuda"), [host(slots(None))], "no_such_device"),
        (Resources(), [], "no_such_device"),
        (
            Resources(device="cuda", min_memory_gb=40.5, gpu=("H100", "A100-80GB")),
            [host([gpu(0, memory=24)])],
            "no_such_device",
        ),
        (
            Resources(cpus=64, memory_gb=9),
            [host(slots(None), cpus=16, memory_gb=8), host(slots(None), "there")],
            "too_big",
        ),
        (Resources(devices_per_node=2), [host(slots(None, None), draining=True)], "devices_busy"),
        (
            Resources(device="cuda"),
            [host([gpu(0, job="x"), gpu(1, blocked="no free disk space"), gpu(2, blocked="no free disk space")])],
            "devices_busy",
        ),
        (
            Resources(),
            [*(host(slots("x"), f"box-{number}") for number in range(5)), host(slots(None), draining=True)],
            "devices_busy",
        ),
    ],
)
def test_the_reason_names_what_is_missing(
    resources: Resources, hosts: list[Host], code: str, approved: Approved
) -> None:
    reason = explain(resources, *hosts)
    assert reason.code == code
    assert reason.message.removesuffix("; behind a job of job_1 (submitted earlier)") == approved.of_row("message")


def test_the_reason_names_the_resource_that_is_short(approved: Approved) -> None:
    held = runs("job_0", resources=Resources(cpus=6))
    asks = Resources(cpus=4)
    line = [waits(name, owner=name, resources=asks) for name in ("job_1", "job_2")]
    reasons = plan(seen(*line, hosts=[host(slots("job_0", None), cpus=8)], running=[held])).reasons
    assert reasons.by_job["job_1"].message == approved("message")


def test_the_reason_says_for_whom_a_place_is_kept_and_who_is_ahead() -> None:
    first, second = waits("job_1", 2, submitted=NOW - 3 * HOUR), waits("job_2", owner="eve")
    snapshot = seen(first, second, hosts=[host(slots("job_0", None))], running=[runs("job_0")])
    reasons = plan(snapshot).reasons
    assert reasons.by_job["job_1"] == Reason(
        "reserved", "needs 2 devices; 1 free on here; here is reserved for this job"
    )
    kept = "needs 1 device; 1 free on here, reserved for a job of ada; behind a job of ada "
    assert reasons.of(second) == Reason("devices_busy", kept + "(submitted earlier)")
    later = replace(snapshot, line=(replace(first, submitted=NOW), second), uses=(OwnerUse("eve", "cpu", 1e6),))
    assert plan(later).reasons.of(second) == Reason("devices_busy", kept + "(its owner used less)")
    higher = replace(snapshot, line=(replace(first, priority=1), second))
    assert plan(higher).reasons.of(second) == Reason("devices_busy", kept + "(higher priority)")


def test_a_reason_says_for_whom_devices_are_set_aside(approved: Approved) -> None:
    urgent, small = waits("job_1", 2, owner="zoe", priority=1), waits("job_2")
    hosts = [host([*slots("job_0", None), gpu(0, job="x")])]
    wants_gpu = waits("job_3", owner="eve", resources=Resources(device="cuda"))
    urgent, small = (
        replace(job, resources=Resources(device="cpu", devices_per_node=job.resources.total_devices))
        for job in (urgent, small)
    )
    running = [runs("job_0", preemptible=True)]
    reasons = plan(seen(urgent, small, wants_gpu, hosts=hosts, running=running)).reasons
    assert reasons.of(replace(small)).message == approved("message")  # type: ignore[union-attr]
    assert "zoe" not in reasons.of(wants_gpu).message  # type: ignore[union-attr]


def test_a_job_starts_where_the_least_is_left_over() -> None:
    hosts = [host(slots(None, None, None)), host(slots("x", None, None), "there")]
    (start,) = plan(seen(waits("job_1", 2), hosts=hosts)).starts
    assert (start.placement.worker_id, start.reservation) == ("wrk_there", None)
    assert [device.uuid for device in start.placement.devices] == ["cpu-1", "cpu-2"]


def test_a_job_starts_where_its_folder_is_without_waiting_for_that_place() -> None:
    free, fuller = host(slots(None, None, None)), host(slots("x", None, None), "there")
    full = host(slots("x", "y", None), "there")
    job = replace(waits("job_1", 2), home=free.id)
    assert [start.placement.worker_id for start in plan(seen(job, hosts=[free, fuller])).starts] == [free.id]
    job = replace(job, home="wrk_there")
    assert [start.placement.worker_id for start in plan(seen(job, hosts=[free, full])).starts] == [free.id]


def test_devices_suit_by_kind_memory_and_name() -> None:
    mixed = host([*slots(None, None), gpu(0, job="x"), gpu(1, memory=24), gpu(2, blocked="held by pid 7")])
    assert starts(seen(waits("job_1", resources=Resources(device="cpu")), hosts=[mixed])) == {"job_1": ["cpu-0"]}
    assert starts(seen(waits("job_1"), hosts=[mixed])) == {"job_1": ["GPU-1"]}, "auto: GPUs if there are any"
    assert starts(seen(waits("job_1", resources=Resources(min_memory_gb=40)), hosts=[mixed])) == {}
    named = host([gpu(0, name="NVIDIA A100-SXM4-40GB"), gpu(1, name="NVIDIA A100-SXM4-80GB")])
    wants = Resources(gpu=("H100", "A100-80GB"))
    assert starts(seen(waits("job_1", resources=wants), hosts=[named])) == {"job_1": ["GPU-1"]}


def test_a_gpu_is_named_by_words_of_its_name() -> None:
    assert is_named("NVIDIA H100 80GB HBM3", "h100")
    assert is_named("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3")
    assert not is_named("NVIDIA H100 80GB HBM3", "H10")
    assert not is_named("NVIDIA A100-SXM4-40GB", "A100-80GB")


def test_a_refused_request_waits_for_the_next_snapshot(approved: Approved) -> None:
    line = (waits("job_1", 2, submitted=NOW - 2 * HOUR), waits("job_2"))
    snapshot = seen(*line, hosts=[host(slots(None, None))])
    assert starts(snapshot) == {"job_1": ["cpu-0", "cpu-1"]}
    refused = snapshot.refusing(line[0].request)
    assert starts(refused) == {"job_2": ["cpu-0"]}
    assert starts(refused.without("job_2")) == {}
    assert starts(snapshot.after_drain(HERE)) == {}
    assert plan(snapshot.after_drain(HERE)).reasons.of(line[0]).message == approved("message")  # type: ignore[union-attr]
