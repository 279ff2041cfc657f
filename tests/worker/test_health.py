"""Which faults of a GPU are believed: those that the driver itself tells of."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.worker.test_devices import Binding
from torchyard.contract.job import EndReason
from torchyard.contract.records import ExitReport
from worker.devices.health import FAULT_XIDS, Health, Verdict
from worker.devices.inventory import discover

SAID = "AcceleratorError: CUDA error: uncorrectable ECC error encountered"
CLAIM = ExitReport(reason=EndReason.DEVICE_FAULT, message=SAID, rank=0, exit_code=1, traceback="…")
GPUS = ("GPU-aaaa", "GPU-bbbb")


@pytest.fixture
def binding() -> Binding:
    return Binding({uuid: [] for uuid in GPUS})


def _judge(binding: Binding, happens: Callable[[], None], *, adopted: bool = False) -> Verdict:
    """What is believed of the claim of an attempt on both GPUs, during which `happens` was called."""
    health = Health(binding, GPUS)
    since = health.marks((*GPUS, "cpu-0"), adopted=adopted)
    happens()
    return health.judge(CLAIM, since=since)


def _nothing() -> None:
    pass


def test_a_fault_that_no_gpu_confirms_is_the_programs_own_error(binding: Binding) -> None:
    binding.uncorrected = {"GPU-aaaa": 3}
    binding.rows = {"GPU-aaaa": (0, 3, 1, 1)}  # all of that was so before
    verdict = _judge(binding, _nothing)
    assert (verdict.report.reason, verdict.faults) == (EndReason.USER_ERROR, {})
    assert verdict.report.message == f"{SAID} (the driver confirms no fault of a GPU)"
    assert (verdict.report.rank, verdict.report.exit_code, verdict.report.traceback) == (0, 1, "…")


def test_a_rank_that_was_killed_over_a_fault_that_nobody_confirms_was_killed(binding: Binding) -> None:
    health = Health(binding, GPUS)
    report = health.judge(replace(CLAIM, exit_code=-6), since=health.marks(GPUS)).report
    assert report.reason is EndReason.KILLED


def test_without_gpus_no_fault_is_believed() -> None:
    health = Health()
    since = health.marks(("cpu-0",))
    assert health.judge(CLAIM, since=since).report.reason is EndReason.USER_ERROR


def test_uncorrected_errors_since_the_start_confirm_it(binding: Binding) -> None:
    binding.uncorrected = {"GPU-bbbb": 3}
    verdict = _judge(binding, lambda: binding.uncorrected.update({"GPU-bbbb": 5}))
    assert verdict.report == CLAIM
    assert verdict.faults == {"GPU-bbbb": "uncorrected ECC errors: 2"}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ((0, 1, 1, 0), "a part of its memory waits to be replaced"),
        ((0, 1, 0, 1), "a row of its memory could not be replaced"),
    ],
)
def test_rows_that_are_lost_since_the_start_confirm_it(
    binding: Binding, rows: tuple[int, int, int, int], said: str
) -> None:
    verdict = _judge(binding, lambda: binding.rows.update({"GPU-aaaa": rows}))
    assert verdict == Verdict(CLAIM, {"GPU-aaaa": said})


def test_pages_of_an_older_gpu_that_wait_to_be_retired_confirm_it(binding: Binding) -> None:
    binding.failing = {"rows"}

    def happens() -> None:
        binding.pages = 1

    assert set(_judge(binding, happens).faults) == set(GPUS)


@pytest.mark.parametrize("call", ["handle", "memory"])
def test_a_gpu_that_answers_no_more_confirms_it(binding: Binding, call: str) -> None:
    verdict = _judge(binding, lambda: binding.failing.add(call))
    assert verdict.faults == dict.fromkeys(GPUS, "it does not answer")


@pytest.mark.parametrize("xid", sorted(FAULT_XIDS))
def test_an_event_of_the_hardware_confirms_it(binding: Binding, xid: int) -> None:
    verdict = _judge(binding, lambda: binding.xids.update({"GPU-bbbb": [31, xid, 43]}))
    assert verdict.faults == {"GPU-bbbb": f"the driver reported XID {xid}"}


@pytest.mark.parametrize("xid", [13, 31, 32, 43, 45, 68, 69, 109])
def test_an_event_that_a_program_can_bring_about_does_not(binding: Binding, xid: int) -> None:
    verdict = _judge(binding, lambda: binding.xids.update({"GPU-aaaa": [xid], "GPU-bbbb": [xid]}))
    assert verdict.report.reason is EndReason.USER_ERROR


def test_an_event_from_before_the_start_does_not(binding: Binding) -> None:
    health = Health(binding, GPUS)
    binding.xids = {"GPU-aaaa": [79]}
    since = health.marks(GPUS)
    assert health.judge(CLAIM, since=since).faults == {}
    binding.xids = {"GPU-aaaa": [79]}
    assert health.judge(CLAIM, since=since).faults == {"GPU-aaaa": "the driver reported XID 79"}


def test_two_attempts_share_the_events_of_a_worker(binding: Binding) -> None:
    health = Health(binding, GPUS)
    first, second = health.marks(GPUS[:1]), health.marks(GPUS)
    binding.xids = {"GPU-aaaa": [79]}
    assert [set(health.judge(CLAIM, since=since).faults) for since in (first, second)] == [{"GPU-aaaa"}] * 2


@pytest.mark.parametrize("failing", [{"events"}, {"ecc", "rows", "pages", "events"}])
def test_what_the_driver_does_not_tell_is_no_evidence(binding: Binding, failing: set[str]) -> None:
    binding.failing = failing
    assert _judge(binding, lambda: binding.xids.update({"GPU-aaaa": [79]})).faults == {}


def test_of_an_adopted_attempt_what_is_only_counted_counts_from_the_adoption(binding: Binding) -> None:
    binding.uncorrected = {"GPU-aaaa": 3}
    assert _judge(binding, _nothing, adopted=True).faults == {}
    verdict = _judge(binding, lambda: binding.uncorrected.update({"GPU-aaaa": 4}), adopted=True)
    assert set(verdict.faults) == {"GPU-aaaa"}


def test_of_an_adopted_attempt_what_its_gpu_says_now_confirms_it(binding: Binding) -> None:
    binding.rows = {"GPU-aaaa": (0, 1, 1, 0)}
    assert set(_judge(binding, _nothing, adopted=True).faults) == {"GPU-aaaa"}


@pytest.mark.parametrize("reason", [reason for reason in EndReason if reason is not EndReason.DEVICE_FAULT])
def test_other_ends_are_left_as_they_are(binding: Binding, reason: EndReason) -> None:
    health = Health(binding, GPUS)
    since = health.marks(GPUS)
    binding.failing = {"handle"}
    report = replace(CLAIM, reason=reason)
    assert health.judge(report, since=since) == Verdict(report)


@pytest.mark.gpu
def test_a_gpu_that_is_well_tells_of_its_memory_and_confirms_nothing() -> None:
    inventory = discover(0)
    uuids = [device.uuid for device in inventory.devices]
    if not uuids:
        pytest.skip("NVML shows no GPU on this machine")
    health = Health(inventory.nvml, uuids)
    since = health.marks(uuids)
    assert all(marks.answers and marks.uncorrected is not None for marks in since.values())
    assert health.judge(CLAIM, since=since).report.reason is EndReason.USER_ERROR
