"""A GPU is offered again after its memory was released and some time after a fault."""

from dataclasses import dataclass, field, replace

import pytest

from tests.approved import Approved
from torchyard.contract.cluster.devices import DeviceReport
from worker.devices.quarantine import FAULT_QUARANTINE, DeviceUse, Quarantine

GIB = 1 << 30
ECC = "uncorrected ECC errors: 1"
LOST = "GPU 0 does not respond: GPU is lost"


@dataclass
class QuarantineFixture:
    """Two GPUs, a CPU slot, and a clock."""

    now: float = 0.0
    used: list[float] = field(default_factory=lambda: [0.5, 0.5])
    blocked: str | None = None
    quarantine: Quarantine = field(init=False)

    def __post_init__(self) -> None:
        self.quarantine = Quarantine(clock=lambda: self.now)

    def blocked_reasons(self, *uses: DeviceUse) -> list[str | None]:
        """Returns why each device is not offered."""
        return [view.blocked for view in self.views(*uses)]

    def views(self, *uses: DeviceUse) -> list[DeviceReport]:
        views = [
            DeviceReport(index=index, uuid=f"GPU-{index}", name="H200", kind="cuda", memory_used_bytes=int(used * GIB))
            for index, used in enumerate(self.used)
        ]
        if self.blocked is not None:
            views[0] = replace(views[0], blocked=self.blocked, memory_used_bytes=None)
        slot = DeviceReport(index=0, uuid="cpu-0", name="CPU slot", kind="cpu")
        return self.quarantine.judge([*views, slot], uses)


def _use(*, ended: bool = True, number: int = 1, failed: tuple[str, ...] = ()) -> DeviceUse:
    return DeviceUse("job_a", number, ("GPU-0", "GPU-1", "cpu-0"), ended=ended, faults=dict.fromkeys(failed, ECC))


@pytest.fixture
def fixture() -> QuarantineFixture:
    return QuarantineFixture()


def test_a_gpu_is_offered_again_only_after_its_memory_was_released(fixture: QuarantineFixture) -> None:
    assert fixture.blocked_reasons() == [None, None, None]
    fixture.used = [21.0, 4.0]
    assert fixture.blocked_reasons(_use(ended=False)) == [None, None, None]  # a job holds it
    fixture.used = [21.0, 0.6]
    said = (
        "GPU 0 is in quarantine: 21.0 GiB are still in use after job_a ended (0.5 GiB before it); "
        "checked again every 5 s"
    )
    assert fixture.blocked_reasons(_use()) == [said, None, None]
    assert fixture.blocked_reasons() == [said, None, None]
    fixture.used[0] = 0.7
    assert fixture.blocked_reasons() == [None, None, None]


def test_an_attempt_that_ended_between_two_observations_counts(fixture: QuarantineFixture) -> None:
    fixture.blocked_reasons()
    fixture.used = [3.0, 0.5]
    fixture.quarantine.note_use(_use(ended=False))  # it was rescued, so its end is unknown
    assert [blocked is None for blocked in fixture.blocked_reasons()] == [False, True, True]


def test_after_a_restart_of_the_worker_a_gpu_with_little_memory_in_use_counts_as_released(
    fixture: QuarantineFixture, approved: Approved
) -> None:
    fixture.used = [1.5, 0.9]
    assert fixture.blocked_reasons(_use()) == [
        approved("blocked_reasons"),
        None,
        None,
    ]


def test_no_memory_counts_as_released_while_the_gpus_of_an_adopted_job_are_unknown(fixture: QuarantineFixture) -> None:
    fixture.used = [21.0, 0.5]
    unknown = DeviceUse("job_b", 1, None, ended=False)
    assert fixture.blocked_reasons(unknown) == [None, None, None]
    left = "21.0 GiB are still in use after job_a"
    assert left in str(fixture.blocked_reasons(_use())[0])
    assert left in str(fixture.blocked_reasons(unknown)[0])


def test_memory_that_others_use_without_a_job_is_no_reason_for_quarantine(fixture: QuarantineFixture) -> None:
    fixture.blocked_reasons()
    fixture.used = [6.0, 6.0]  # a desktop
    assert fixture.blocked_reasons() == [None, None, None]


def test_a_foreign_process_does_not_make_the_memory_count_as_released(
    fixture: QuarantineFixture, approved: Approved
) -> None:
    fixture.blocked_reasons()
    fixture.used = [21.0, 0.5]
    fixture.quarantine.note_use(_use())
    fixture.blocked = "GPU 0 is held by pid 7 (20 GiB), not ours"
    assert fixture.blocked_reasons()[0] == fixture.blocked
    fixture.blocked = None
    assert str(fixture.blocked_reasons()[0]) == approved("blocked_reasons")


def test_memory_is_expected_back_within_a_minute_but_not_from_a_failed_gpu(fixture: QuarantineFixture) -> None:
    fixture.blocked_reasons()
    fixture.used = [21.0, 21.0]
    fixture.blocked_reasons(_use(ended=False))
    fixture.now += 1000
    ended = _use(failed=("GPU-1",))
    assert [view.returning for view in fixture.views(ended)] == [True, False, False]
    fixture.now += 59
    assert [view.returning for view in fixture.views()] == [True, False, False]
    fixture.now += 1
    assert [view.returning for view in fixture.views()] == [False] * 3


def test_a_failed_gpu_is_in_quarantine_for_ten_minutes(fixture: QuarantineFixture) -> None:
    fixture.blocked_reasons()
    fixture.blocked_reasons(_use(failed=("GPU-1",)))
    fixture.now += FAULT_QUARANTINE.total_seconds() - 1
    blocked = fixture.blocked_reasons(_use(failed=("GPU-1",)))  # a repeated note changes nothing
    assert [reason is None for reason in blocked] == [True, False, True]
    assert str(blocked[1]).endswith("UTC: it failed under job_a (uncorrected ECC errors: 1)")
    fixture.now += 1
    assert fixture.blocked_reasons() == [None, None, None]


def test_the_quarantine_starts_again_while_the_gpu_does_not_respond_and_after_another_fault(
    fixture: QuarantineFixture,
) -> None:
    fixture.blocked_reasons(_use(failed=("GPU-0",)))
    fixture.now += FAULT_QUARANTINE.total_seconds() - 1
    fixture.blocked = LOST
    assert fixture.blocked_reasons()[0] == LOST
    fixture.blocked = None
    fixture.now += 2
    assert "until" in str(fixture.blocked_reasons()[0])
    fixture.now += FAULT_QUARANTINE.total_seconds()
    assert fixture.blocked_reasons()[0] is None
    fixture.blocked_reasons(_use(failed=("GPU-0",), number=2))
    assert "until" in str(fixture.blocked_reasons()[0])
