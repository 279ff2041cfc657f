"""A device fault is believed only if the driver confirms it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.approved import Approved
from tests.worker.test_devices import FakeNvml
from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.states import EndReason
from worker.devices.health import FAULT_XIDS, Health, Verdict
from worker.devices.inventory import discover

MESSAGE = "AcceleratorError: CUDA error: uncorrectable ECC error encountered"
REPORT = ExitReport(reason=EndReason.DEVICE_FAULT, message=MESSAGE, rank=0, exit_code=1, traceback="…")
GPUS = ("GPU-aaaa", "GPU-bbbb")


@pytest.fixture
def binding() -> FakeNvml:
    return FakeNvml({uuid: [] for uuid in GPUS})


def _judge(binding: FakeNvml, happens: Callable[[], None], *, adopted: bool = False) -> Verdict:
    """Returns the verdict on the report of an attempt on both GPUs. `happens` is called while it runs."""
    health = Health(binding, GPUS)
    since = health.read((*GPUS, "cpu-0"), adopted=adopted)
    happens()
    return health.judge(REPORT, since=since)


def _nothing() -> None:
    pass


def test_a_fault_that_no_gpu_confirms_is_an_error_of_the_program(binding: FakeNvml, approved: Approved) -> None:
    binding.uncorrected = {"GPU-aaaa": 3}
    binding.rows = {"GPU-aaaa": (0, 3, 1, 1)}  # all of that was so before the start
    verdict = _judge(binding, _nothing)
    assert (verdict.report.reason, verdict.faults) == (EndReason.USER_ERROR, {})
    assert verdict.report.message == approved("message", message=MESSAGE)
    assert (verdict.report.rank, verdict.report.exit_code, verdict.report.traceback) == (0, 1, "…")


def test_an_unconfirmed_fault_of_a_rank_that_a_signal_killed_is_reported_as_killed(binding: FakeNvml) -> None:
    health = Health(binding, GPUS)
    report = health.judge(replace(REPORT, exit_code=-6), since=health.read(GPUS)).report
    assert report.reason is EndReason.KILLED


def test_without_gpus_no_fault_is_believed() -> None:
    health = Health()
    since = health.read(("cpu-0",))
    assert health.judge(REPORT, since=since).report.reason is EndReason.USER_ERROR


def test_uncorrected_errors_since_the_start_confirm_a_fault(binding: FakeNvml) -> None:
    binding.uncorrected = {"GPU-bbbb": 3}
    verdict = _judge(binding, lambda: binding.uncorrected.update({"GPU-bbbb": 5}))
    assert verdict.report == REPORT
    assert verdict.faults == {"GPU-bbbb": "uncorrected ECC errors: 2"}


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ((0, 1, 1, 0), "a part of its memory waits to be replaced"),
        ((0, 1, 0, 1), "a row of its memory could not be replaced"),
    ],
)
def test_memory_rows_that_failed_since_the_start_confirm_a_fault(
    binding: FakeNvml, rows: tuple[int, int, int, int], fault: str
) -> None:
    verdict = _judge(binding, lambda: binding.rows.update({"GPU-aaaa": rows}))
    assert verdict == Verdict(REPORT, {"GPU-aaaa": fault})


def test_pages_of_an_older_gpu_that_wait_for_retirement_confirm_a_fault(binding: FakeNvml) -> None:
    binding.failing = {"rows"}

    def happens() -> None:
        binding.pages = 1

    assert set(_judge(binding, happens).faults) == set(GPUS)


@pytest.mark.parametrize("call", ["handle", "memory"])
def test_a_gpu_that_stops_responding_confirms_a_fault(binding: FakeNvml, call: str) -> None:
    verdict = _judge(binding, lambda: binding.failing.add(call))
    assert verdict.faults == dict.fromkeys(GPUS, "it does not respond")


@pytest.mark.parametrize("xid", sorted(FAULT_XIDS))
def test_a_hardware_event_confirms_a_fault(binding: FakeNvml, xid: int, approved: Approved) -> None:
    verdict = _judge(binding, lambda: binding.xids.update({"GPU-bbbb": [31, xid, 43]}))
    assert verdict.faults == {"GPU-bbbb": approved("GPU_bbbb", xid=xid)}


@pytest.mark.parametrize("xid", [13, 31, 32, 43, 45, 68, 69, 109])
def test_an_event_that_a_program_can_cause_confirms_no_fault(binding: FakeNvml, xid: int) -> None:
    verdict = _judge(binding, lambda: binding.xids.update({"GPU-aaaa": [xid], "GPU-bbbb": [xid]}))
    assert verdict.report.reason is EndReason.USER_ERROR


def test_an_event_before_the_start_confirms_no_fault(binding: FakeNvml, approved: Approved) -> None:
    health = Health(binding, GPUS)
    binding.xids = {"GPU-aaaa": [79]}
    since = health.read(GPUS)
    assert health.judge(REPORT, since=since).faults == {}
    binding.xids = {"GPU-aaaa": [79]}
    assert health.judge(REPORT, since=since).faults == {"GPU-aaaa": approved("GPU_aaaa")}


def test_two_attempts_share_the_events_of_a_worker(binding: FakeNvml) -> None:
    health = Health(binding, GPUS)
    first, second = health.read(GPUS[:1]), health.read(GPUS)
    binding.xids = {"GPU-aaaa": [79]}
    assert [set(health.judge(REPORT, since=since).faults) for since in (first, second)] == [{"GPU-aaaa"}] * 2


@pytest.mark.parametrize("failing", [{"events"}, {"ecc", "rows", "pages", "events"}])
def test_values_that_the_driver_does_not_report_confirm_no_fault(binding: FakeNvml, failing: set[str]) -> None:
    binding.failing = failing
    assert _judge(binding, lambda: binding.xids.update({"GPU-aaaa": [79]})).faults == {}


def test_the_error_counter_of_an_adopted_attempt_starts_at_the_adoption(binding: FakeNvml) -> None:
    binding.uncorrected = {"GPU-aaaa": 3}
    assert _judge(binding, _nothing, adopted=True).faults == {}
    verdict = _judge(binding, lambda: binding.uncorrected.update({"GPU-aaaa": 4}), adopted=True)
    assert set(verdict.faults) == {"GPU-aaaa"}


def test_a_pending_repair_at_the_adoption_confirms_a_fault(binding: FakeNvml) -> None:
    binding.rows = {"GPU-aaaa": (0, 1, 1, 0)}
    assert set(_judge(binding, _nothing, adopted=True).faults) == {"GPU-aaaa"}


@pytest.mark.parametrize("reason", [reason for reason in EndReason if reason is not EndReason.DEVICE_FAULT])
def test_other_reports_are_not_changed(binding: FakeNvml, reason: EndReason) -> None:
    health = Health(binding, GPUS)
    since = health.read(GPUS)
    binding.failing = {"handle"}
    report = replace(REPORT, reason=reason)
    assert health.judge(report, since=since) == Verdict(report)


@pytest.mark.gpu
def test_a_healthy_gpu_reports_its_errors_and_confirms_no_fault() -> None:
    inventory = discover(0)
    uuids = [device.uuid for device in inventory.devices]
    if not uuids:
        pytest.skip("NVML shows no GPU on this machine")
    health = Health(inventory.nvml, uuids)
    since = health.read(uuids)
    assert all(found.responds and found.uncorrected_errors is not None for found in since.values())
    assert health.judge(REPORT, since=since).report.reason is EndReason.USER_ERROR
