"""What a GPU must show before it is offered again: its memory is back, and a fault is some time ago."""

from dataclasses import dataclass, field

import pytest

from torchyard.contract.views import DeviceView
from worker.devices.quarantine import HEALTHY, Quarantine, Use

GIB = 1 << 30
ECC = "uncorrected ECC errors: 1"
LOST = "GPU 0 does not answer: GPU is lost"


@dataclass
class Bench:
    """Two GPUs, a CPU slot, and a clock."""

    now: float = 0.0
    used: list[float] = field(default_factory=lambda: [0.5, 0.5])
    blocked: str | None = None
    quarantine: Quarantine = field(init=False)

    def __post_init__(self) -> None:
        self.quarantine = Quarantine(clock=lambda: self.now)

    def look(self, *uses: Use) -> list[str | None]:
        """Why each device is not offered."""
        return [view.blocked for view in self.views(*uses)]

    def views(self, *uses: Use) -> list[DeviceView]:
        views = [
            DeviceView(index=index, uuid=f"GPU-{index}", name="H200", kind="cuda", memory_used_bytes=int(used * GIB))
            for index, used in enumerate(self.used)
        ]
        if self.blocked is not None:
            views[0] = views[0].model_copy(update={"blocked": self.blocked, "memory_used_bytes": None})
        slot = DeviceView(index=0, uuid="cpu-0", name="CPU slot", kind="cpu")
        return self.quarantine.judge([*views, slot], uses)


def _use(*, over: bool = True, number: int = 1, failed: tuple[str, ...] = ()) -> Use:
    return Use("job_a", number, ("GPU-0", "GPU-1", "cpu-0"), over=over, faults=dict.fromkeys(failed, ECC))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_gpu_is_offered_again_only_when_its_memory_is_back(bench: Bench) -> None:
    assert bench.look() == [None, None, None]
    bench.used = [21.0, 4.0]
    assert bench.look(_use(over=False)) == [None, None, None]  # whoever holds it is no quarantine
    bench.used = [21.0, 0.6]
    said = (
        "GPU 0 is in quarantine: 21.0 GiB are still in use after job_a ended (0.5 GiB before it); "
        "looked at again every 5 s"
    )
    assert bench.look(_use()) == [said, None, None]
    assert bench.look() == [said, None, None]
    bench.used[0] = 0.7
    assert bench.look() == [None, None, None]


def test_an_attempt_that_was_over_before_anybody_looked_counts_too(bench: Bench) -> None:
    bench.look()
    bench.used = [3.0, 0.5]
    bench.quarantine.note(_use(over=False))  # it was rescued: nobody knows its end
    assert [blocked is None for blocked in bench.look()] == [False, True, True]


def test_after_a_restart_during_the_job_an_idle_gpu_is_known_by_little_memory(bench: Bench) -> None:
    bench.used = [1.5, 0.9]
    assert bench.look(_use()) == [
        "GPU 0 is in quarantine: 1.5 GiB are still in use after job_a ended; looked at again every 5 s",
        None,
        None,
    ]


def test_while_it_is_not_known_which_gpus_an_adopted_job_has_no_memory_is_taken_for_idle(bench: Bench) -> None:
    bench.used = [21.0, 0.5]
    unknown = Use("job_b", 1, None, over=False)
    assert bench.look(unknown) == [None, None, None]
    left = "21.0 GiB are still in use after job_a"
    assert left in str(bench.look(_use())[0])
    assert left in str(bench.look(unknown)[0])


def test_what_others_take_where_no_job_was_is_their_own_matter(bench: Bench) -> None:
    bench.look()
    bench.used = [6.0, 6.0]  # a desktop
    assert bench.look() == [None, None, None]


def test_a_stranger_on_it_does_not_make_the_memory_confirmed(bench: Bench) -> None:
    bench.look()
    bench.used = [21.0, 0.5]
    bench.quarantine.note(_use())
    bench.blocked = "GPU 0 is held by pid 7 (20 GiB), not ours"
    assert bench.look()[0] == bench.blocked
    bench.blocked = None
    assert "is in quarantine: 21.0 GiB" in str(bench.look()[0])


def test_for_a_minute_after_the_job_its_memory_is_expected_back_but_not_from_a_gpu_that_failed(bench: Bench) -> None:
    bench.look()
    bench.used = [21.0, 21.0]
    bench.look(_use(over=False))
    bench.now += 1000
    ended = _use(failed=("GPU-1",))
    assert [view.returning for view in bench.views(ended)] == [True, False, False]
    bench.now += 59
    assert [view.returning for view in bench.views()] == [True, False, False]
    bench.now += 1
    assert [view.returning for view in bench.views()] == [False] * 3


def test_a_fault_keeps_the_device_that_failed_until_it_was_well_for_a_while(bench: Bench) -> None:
    bench.look()
    bench.look(_use(failed=("GPU-1",)))
    bench.now += HEALTHY.total_seconds() - 1
    blocked = bench.look(_use(failed=("GPU-1",)))  # noted once, however often it is told
    assert [reason is None for reason in blocked] == [True, False, True]
    assert str(blocked[1]).endswith("UTC: job_a met a fault on it (uncorrected ECC errors: 1)")
    bench.now += 1
    assert bench.look() == [None, None, None]


def test_the_time_begins_anew_while_it_does_not_answer_and_with_the_next_fault(bench: Bench) -> None:
    bench.look(_use(failed=("GPU-0",)))
    bench.now += HEALTHY.total_seconds() - 1
    bench.blocked = LOST
    assert bench.look()[0] == LOST
    bench.blocked = None
    bench.now += 2
    assert "until" in str(bench.look()[0])
    bench.now += HEALTHY.total_seconds()
    assert bench.look()[0] is None
    bench.look(_use(failed=("GPU-0",), number=2))
    assert "until" in str(bench.look()[0])
