"""A job that does not use its GPUs is warned at half of its timeout, and stopped at the end of it."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from sqlalchemy import func, select, update

from controller import duties
from controller.duties import Idle
from store.attempts import use
from store.attempts.idleness import follow
from store.db.database import in_us, now_us
from store.jobs import stop
from store.jobs.stop import requested_stop
from store.store import Store
from store.tables import Allocation, Attempt, AttemptUse, Job, NotificationTarget, Signal
from store.worker.records import HostOffer
from store.worker.verbs import WorkerStore
from tests import sessions
from tests.approved import Approved
from tests.databases import on_both, quick_on_sqlite
from tests.store.fixture import StoreFixture, run_together, store_on
from torchyard.contract.cluster.devices import DeviceReport, StartsReport
from torchyard.contract.notifications.kinds import EventKind
from torchyard.contract.states import EndReason, JobState
from torchyard.contract.wire.units import parse_duration

HALF = "all 2 GPUs were used below 5% for {}; if that goes on, the job is stopped in 15m (idle_timeout 30m)"
ALL = "all 2 GPUs were used below 5% for 30m (idle_timeout)"
RECIPE: dict[str, Any] = {"trainer": "image-classification", "config": {"data": {"source": "digits"}}}


def us(duration: str) -> int:
    return in_us(parse_duration(duration))


@dataclass
class Holder:
    """A job that has run on two GPUs for a day. The test writes what its worker's reports say of their use."""

    db: StoreFixture
    store: Store
    maximum: str | None = None
    name: str = "box-a"

    def __post_init__(self) -> None:
        self.worker = self.db.worker(self.name)

    def run(self, **spec: Any) -> "Holder":
        usual: dict[str, Any] = {"resources": {"devices_per_node": 2}, "max_restarts": 3, "idle_timeout": "30m"}
        self.job_id = self.db.submit(**usual | spec)
        return self.again()

    def again(self) -> "Holder":
        self.claim = self.db.running(self.job_id, self.worker, "gpu-0", "gpu-1")
        self.attempt(running_at=now_us() - us("1d"))
        return self

    def attempt(self, **values: Any) -> None:
        change = update(Attempt).where(Attempt.id == self.claim.attempt_id).values(**values)
        self.db.write(lambda session: session.execute(change))

    def idles(self, lasted: str | None, *, seen: str = "1s", **values: Any) -> "Holder":
        """Has the reports say that all GPUs are idle for so long; None: that one of them is used."""
        since = None if lasted is None else now_us() - us(lasted)
        row = {"seen_at": now_us() - us(seen), "idle_since": since, **values}
        change = update(AttemptUse).where(AttemptUse.attempt_id == self.claim.attempt_id).values(**row)
        if self.db.write(lambda session: session.execute(change.returning(AttemptUse.attempt_id)).first()) is None:
            new = AttemptUse(attempt_id=self.claim.attempt_id, measured_us=0, busy_us=0, idle_us=0, **row)
            self.db.write(lambda session: session.add(new))
        return self

    def warned(self, ago: str) -> "Holder":
        change = update(AttemptUse).values(warned_at=now_us() - us(ago))
        self.db.write(lambda session: session.execute(change))
        return self

    def reports(self, *shares: float | None) -> None:
        """Has the worker send a heartbeat with the utilization of its GPUs."""
        devices = [
            DeviceReport(
                index=index, uuid=f"gpu-{index}", name="H200", kind="cuda", utilization=share, memory_used_bytes=1
            )
            for index, share in enumerate(shares)
        ]
        WorkerStore(self.store, self.worker).heartbeat(HostOffer(devices), starts=StartsReport(mode="cold"))

    def look(self) -> None:
        Idle(self.store, None if self.maximum is None else parse_duration(self.maximum)).run()

    @property
    def warnings(self) -> list[str]:
        events = [event.data for event in self.db.events(self.job_id) if event.type == "message"]
        return [str(data["text"]) for data in events if data["level"] == "warning"]

    @property
    def stop(self) -> EndReason | None:
        return requested_stop(self.db.job(self.job_id))


@pytest.fixture
def holder(db: StoreFixture, store: Store) -> Holder:
    return Holder(db, store)


@on_both
def test_it_is_warned_once_at_half_of_its_timeout_and_stopped_at_the_end(holder: Holder) -> None:
    holder.run().idles("14m").look()
    assert holder.warnings == []
    for _ in range(3):
        holder.idles("16m").look()
    assert holder.warnings == [HALF.format("16m")]
    assert holder.stop is None
    holder.idles("29m").warned("14m").look()
    assert holder.stop is None
    for _ in range(3):
        holder.idles("30m").warned("15m").look()
    job = holder.db.job(holder.job_id)
    assert (requested_stop(job), job.reason_code) == (EndReason.IDLE_TIMEOUT, "stopping")
    assert holder.warnings[1:] == [f"{ALL}: may save a checkpoint before it stops"]
    assert holder.db.end(holder.claim, EndReason.IDLE_TIMEOUT, "it did not use its GPUs (idle_timeout); killed") == (
        JobState.FAILED
    )
    job = holder.db.job(holder.job_id)
    assert (job.state, job.reason_code, job.reason_message, job.restarts) == (
        "failed",
        "idle_timeout",
        f"{ALL}; killed",
        0,
    )
    assert job.error is not None
    assert (job.error["code"], job.idle_requested_at, job.idle_timeout_s) == ("idle_timeout", None, None)


@quick_on_sqlite
def test_a_job_in_which_a_user_types_is_in_use(holder: Holder) -> None:
    holder.run().idles("40m")
    holder.db.write(lambda session: use.note_input(session, holder.claim.attempt_id))
    holder.look()
    assert holder.warnings == []
    holder.idles("40m", input_at=now_us() - us("16m")).look()
    assert holder.warnings == [HALF.format("16m")]


@quick_on_sqlite
def test_one_gpu_is_called_one(holder: Holder, approved: Approved) -> None:
    holder.run(resources={"devices_per_node": 1})
    device = [{"worker": "box-a", "uuid": "gpu-0", "index": 0, "name": "GPU"}]
    holder.db.write(lambda session: session.execute(update(Job).values(devices=device)))
    holder.idles("90s").look()
    holder.idles("20m").look()
    assert holder.warnings[0] == approved("warnings")


@quick_on_sqlite
def test_the_heartbeats_of_its_worker_say_whether_it_is_idle(holder: Holder) -> None:
    holder.run()
    holder.db.write(lambda session: session.execute(update(Allocation).values(kind="cuda")))
    holder.reports(0.0, 0.04)
    holder.idles("20m").reports(0.01, 0.0)
    holder.look()
    assert holder.warnings == [HALF.format("20m")]
    holder.idles("40m").warned("20m").reports(0.01, 0.9)
    holder.look()
    holder.idles("40m").warned("20m").reports(0.01, None)
    holder.look()
    assert holder.stop is None
    holder.idles("40m").warned("20m").reports(0.0, 0.0)
    holder.look()
    assert holder.stop is EndReason.IDLE_TIMEOUT  # pyrefly: ignore[unnecessary-comparison] `look` sets it


@quick_on_sqlite
def test_a_moment_of_use_begins_anew(holder: Holder) -> None:
    holder.run().idles("20m").look()
    holder.idles(None).look()
    holder.idles("16m").warned("17m").look()
    assert [text[:38] for text in holder.warnings] == [HALF.format(lasted)[:38] for lasted in ("20m", "16m")]
    holder.idles(None).warned("15m").look()
    assert holder.stop is None


@quick_on_sqlite
def test_nobody_is_stopped_without_a_warning_before(holder: Holder) -> None:
    holder.run().idles("3h").look()
    assert (holder.warnings, holder.stop) == ([HALF.format("3h")], None)
    holder.warned("14m").look()
    assert holder.stop is None
    holder.warned("15m").look()
    assert holder.stop is EndReason.IDLE_TIMEOUT  # pyrefly: ignore[unnecessary-comparison] `look` sets it


@pytest.mark.parametrize(
    ("spec", "maximum", "stopped_after"),
    [
        ("2h", "1h", "1h"),
        ("30m", "1h", "30m"),
        pytest.param(None, "1h", "1h", marks=pytest.mark.thorough),
        pytest.param("2h", None, "2h", marks=pytest.mark.thorough),
    ],
)
@quick_on_sqlite
def test_the_shorter_of_its_own_and_the_operators_counts(
    holder: Holder, spec: str | None, maximum: str | None, stopped_after: str
) -> None:
    holder.maximum = maximum
    almost = f"{us(stopped_after) // 1_000_000 - 10}s"
    holder.run(idle_timeout=spec).idles(almost).warned(almost).look()
    assert holder.stop is None
    holder.idles(stopped_after).warned(almost).look()
    assert holder.stop is EndReason.IDLE_TIMEOUT  # pyrefly: ignore[unnecessary-comparison] `look` sets it
    assert holder.db.job(holder.job_id).idle_timeout_s == us(stopped_after) // 1_000_000


@quick_on_sqlite
def test_a_job_without_a_timeout_is_left_alone(holder: Holder) -> None:
    holder.run(idle_timeout=None).idles("3d").warned("2d").look()
    assert (holder.warnings, holder.stop) == ([], None)


@quick_on_sqlite
def test_reports_of_a_worker_that_is_silent_since_stop_nobody(holder: Holder) -> None:
    holder.run().idles("3h", seen="31s").look()
    holder.warned("2h").look()
    assert (holder.warnings, holder.stop) == ([], None)


@quick_on_sqlite
def test_a_clock_that_jumped_back_stops_nobody(holder: Holder) -> None:
    holder.run().idles("0s", idle_since=now_us() + us("1d"), seen_at=now_us() + us("1d")).look()
    holder.idles("2h", warned_at=now_us() + us("1d")).look()
    assert (holder.warnings, holder.stop) == ([], None)


@pytest.mark.parametrize("running", ["1m", None])
@quick_on_sqlite
def test_the_time_before_its_processes_run_does_not_count(holder: Holder, running: str | None) -> None:
    holder.run().attempt(running_at=None if running is None else now_us() - us(running))
    holder.idles("3h").look()
    assert (holder.warnings, holder.stop) == ([], None)


@quick_on_sqlite
def test_a_job_that_starts_is_not_idle(holder: Holder) -> None:
    holder.run().idles("3h")
    holder.db.write(lambda session: session.execute(update(Job).values(state=JobState.STARTING)))
    holder.look()
    assert (holder.warnings, holder.stop) == ([], None)


@on_both
def test_a_recipe_is_idle_only_after_its_first_step(holder: Holder) -> None:
    holder.run(**RECIPE).idles("3h").look()
    holder.attempt(start_step=5)
    progress = {"total_steps": 100, "epoch": 1, "epochs": 3, "fraction": 0.05, "eta_seconds": None}
    for seq, step in enumerate((0, 5)):  # it looks at its data, and resumes
        holder.db.record(holder.claim, seq=seq, progress={"step": step, **progress})
        holder.look()
    assert (holder.warnings, holder.db.attempt(holder.claim).stepped_at) == ([], None)
    holder.db.record(holder.claim, seq=2, progress={"step": 6, **progress})
    first = holder.db.attempt(holder.claim).stepped_at
    assert first is not None
    holder.db.record(holder.claim, seq=3, progress={"step": 7, **progress})
    assert holder.db.attempt(holder.claim).stepped_at == first
    holder.look()
    assert holder.warnings == []
    holder.attempt(stepped_at=now_us() - us("20m"))
    holder.look()
    assert holder.warnings == [HALF.format("20m")]


@quick_on_sqlite
def test_another_attempt_begins_anew(holder: Holder) -> None:
    holder.run().idles("20m").look()
    holder.db.end(holder.claim, EndReason.USER_ERROR)
    holder.db.write(lambda session: session.execute(update(Job).values(not_before=None)))
    holder.again().look()
    holder.idles("16m").look()
    assert len(holder.warnings) == 2


@pytest.mark.parametrize("request_it", ["cancel", "pause", "preempt"])
@quick_on_sqlite
def test_a_job_that_is_asked_to_stop_is_left_alone(holder: Holder, request_it: str) -> None:
    holder.run(preemptible=True).idles("3h")
    if request_it == "preempt":
        assert holder.db.preempt(holder.job_id, preemptor=holder.db.submit(priority=5))
    else:
        getattr(holder.db, request_it)(holder.job_id)
    holder.look()
    assert holder.warnings == []
    holder.warned("2h").look()
    assert holder.db.job(holder.job_id).idle_requested_at is None


@quick_on_sqlite
def test_a_target_is_told_of_the_warning(holder: Holder) -> None:
    target: dict[str, Any] = {"id": "ntf_1", "owner": "ada", "name": "hook", "kind": "webhook", "shown": "https://a"}
    target |= {"sealed": b"", "key_id": "", "kinds": f" {EventKind.JOB_WARNING} ", "jobs": "all", "scope": "own"}
    holder.db.write(lambda session: session.add(NotificationTarget(**target)))
    holder.run().idles("20m").look()
    told = holder.db.read(lambda session: session.scalars(select(Signal)).all())
    assert [(row.kind, row.subject, row.data["text"]) for row in told] == [
        (EventKind.JOB_WARNING, holder.job_id, HALF.format("20m"))
    ]


@on_both
def test_controllers_that_work_at_once_warn_and_stop_once(holder: Holder) -> None:
    calls = [
        partial(sessions.write, store_on(holder.db.database), follow, holder.run().idles("20m").job_id, maximum=None)
    ] * 4
    run_together(*calls)
    assert len(holder.warnings) == 1
    holder.idles("40m").warned("20m")
    run_together(*calls)
    assert len(holder.warnings) == 2
    assert holder.stop is EndReason.IDLE_TIMEOUT


@quick_on_sqlite
def test_many_jobs_take_several_turns(holder: Holder, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duties, "MOST_IDLE_AT_ONCE", 1)
    holders = [holder.run().idles("20m"), Holder(holder.db, store, name="box-b").run().idles("20m")]
    duty = Idle(store, None)
    assert [duty.run(), duty.run(), duty.run()] == [True, False, False]
    assert [len(each.warnings) for each in holders] == [1, 1]


@quick_on_sqlite
def test_a_job_that_has_ended_meanwhile_gets_nothing(holder: Holder, store: Store) -> None:
    holder.run().idles("20m")
    holder.db.end(holder.claim, EndReason.COMPLETED)
    sessions.write(store, follow, holder.job_id, maximum=None)
    sessions.write(store, follow, "job_gone", maximum=None)
    assert holder.warnings == []
    assert holder.db.read(lambda session: session.scalar(select(func.count()).select_from(Signal))) == 0


@quick_on_sqlite
def test_the_request_stands_if_the_gpus_are_used_again(holder: Holder) -> None:
    holder.run().idles("30m").warned("15m").look()
    holder.idles(None).look()
    assert holder.stop is EndReason.IDLE_TIMEOUT


@pytest.mark.parametrize(
    "reason",
    [
        EndReason.WORKER_LOST,
        *(
            pytest.param(reason, marks=pytest.mark.thorough)
            for reason in (EndReason.PREEMPTED, EndReason.USER_ERROR, EndReason.HANG)
        ),
    ],
)
@quick_on_sqlite
def test_no_retry_follows_however_the_stopped_attempt_ends(
    holder: Holder, reason: EndReason, approved: Approved
) -> None:
    holder.run().idles("30m").warned("15m").look()
    assert holder.db.end(holder.claim, reason, "by a signal", asked=False) is JobState.FAILED
    job = holder.db.job(holder.job_id)
    assert (job.reason_code, job.reason_message) == ("idle_timeout", approved("reason_message", all=ALL))


@quick_on_sqlite
def test_a_job_that_ends_by_itself_meanwhile_has_succeeded(holder: Holder) -> None:
    holder.run().idles("30m").warned("15m").look()
    assert holder.db.end(holder.claim, EndReason.COMPLETED) is JobState.SUCCEEDED


@quick_on_sqlite
def test_its_owner_may_pause_it_instead_and_a_preemption_comes_too_late(holder: Holder) -> None:
    holder.run(preemptible=True).idles("30m").warned("15m").look()
    assert not holder.db.preempt(holder.job_id, preemptor=holder.db.submit(priority=5))
    holder.db.pause(holder.job_id)
    assert holder.stop is EndReason.PAUSED
    assert holder.db.end(holder.claim, EndReason.IDLE_TIMEOUT) is JobState.PAUSED
    holder.db.resume(holder.job_id)
    assert holder.again().stop is None


@quick_on_sqlite
def test_a_withdrawn_pause_does_not_withdraw_the_stop(holder: Holder) -> None:
    holder.run().idles("30m").warned("15m").look()
    holder.db.pause(holder.job_id)
    job = holder.db.resume(holder.job_id)
    assert (requested_stop(job), job.reason_code) == (EndReason.IDLE_TIMEOUT, "stopping")


@quick_on_sqlite
def test_its_owner_may_cancel_it_instead(holder: Holder) -> None:
    holder.run().idles("30m").warned("15m").look()
    holder.db.write(lambda session: stop.request_cancel(session, holder.job_id))
    assert holder.stop is EndReason.CANCELLED
    assert holder.db.end(holder.claim, EndReason.CANCELLED) is JobState.CANCELLED
