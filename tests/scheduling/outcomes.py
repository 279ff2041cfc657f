"""What a pass over the queue does in each of the worlds, as recorded before `scheduling.plan` was written.

`outcomes.json` has one line for each world. `python -m tests.scheduling.outcomes` prints what the pass of today does.
"""

from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
import json
from pathlib import Path
import sys
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import update
from sqlalchemy.orm import Session

from store.db.database import Database, now_us
from store.db.tables import Attempt, Job, Worker
from store.queue import Queue
from store.rows import quotas, users
from tests.databases import SQLiteDatabases
from tests.scheduling.worlds import COUNT, World, WorldRunning, world
from tests.store.fixture import StoreFixture, a_service
from tests.worker.schedulers import SchedulerFixture, SchedulersFixture
from torchyard.contract.job import JobState
from torchyard.contract.team import Resource, Role

RECORDED = Path(__file__).with_name("outcomes.json")


@dataclass(frozen=True)
class Outcome:
    """Jobs are the numbers of the world's waiting or running jobs."""

    starts: list[tuple[int, list[str]]]
    """Waiting jobs that start, in this order, each with its devices."""
    stops: list[tuple[int, int]]
    """Running jobs that are asked to stop, each with the waiting job that needs its devices."""
    reasons: dict[int, tuple[str, str]]
    """Why each of the other jobs waits, without those that are held back."""

    def to_json(self) -> str:
        """Returns one line, in which equal reasons stand once."""
        jobs: dict[tuple[str, str], list[int]] = {}
        for job, reason in self.reasons.items():
            jobs.setdefault(reason, []).append(job)
        reasons = [[code, message, waiting] for (code, message), waiting in jobs.items()]
        return json.dumps([self.starts, self.stops, reasons], separators=(",", ":"))


def recorded() -> list[Outcome]:
    """Returns the recorded outcomes, by number of the world."""
    found: list[Outcome] = []
    for line in RECORDED.read_text().splitlines():
        starts, stops, reasons = json.loads(line)
        found.append(
            Outcome(
                [(job, devices) for job, devices in starts],
                [(victim, preemptor) for victim, preemptor in stops],
                {job: (code, message) for code, message, jobs in reasons for job in jobs},
            )
        )
    return found


def outcome_on(database: Database, of: World) -> Outcome:
    """Stores the world in an empty database, makes one pass, and returns what it did."""
    store = StoreFixture(database)
    schedulers = SchedulersFixture(store, Queue("unix:///nowhere/redis.sock", service=a_service))
    boxes = [schedulers.scheduler(host.name, *host.devices) for host in of.hosts]
    running = [_start(store, job, boxes[job.host].id, number) for number, job in enumerate(of.running)]
    waiting = [
        store.submit(
            owner=job.owner,
            priority=job.priority,
            resources={"devices_per_node": job.count, "device": job.device, "min_memory_gb": job.min_memory_gb},
        )
        for job in of.waiting
    ]
    store.write(lambda session: _disturb(session, of, boxes, running, waiting))
    boxes[of.here].run_pass()
    return _outcome(store, of, boxes[of.here], running, waiting)


def _start(store: StoreFixture, job: WorldRunning, worker_id: str, number: int) -> str:
    job_id = store.submit(owner=job.owner, priority=job.priority, preemptible=job.preemptible)
    claim = store.running(job_id, worker_id, *job.devices)
    # A later number began later, whatever the resolution of the database's clock.
    later = update(Attempt).where(Attempt.id == claim.attempt_id).values(started_at=now_us() + number * 1_000)
    store.write(lambda session: session.execute(later))
    if job.stop == "cancel":
        store.cancel(job_id)
    if job.stop == "pause":
        store.pause(job_id)
    return job_id


def _disturb(
    session: Session, of: World, boxes: list[SchedulerFixture], running: list[str], waiting: list[str]
) -> None:
    """Stores what is not done by claims and submissions."""
    for box, host in zip(boxes, of.hosts, strict=True):
        values: dict[str, Any] = {"drain_requested_at": now_us()} if host.draining else {}
        values |= {"seen_at": 1} if host.lost else {}
        if values:
            session.execute(update(Worker).where(Worker.id == box.id).values(**values))
    for stop in of.preemptions:
        asked = now_us() - timedelta(seconds=stop.ago_s) // timedelta(microseconds=1)
        values = {"preempt_requested_at": asked, "preempted_for": waiting[stop.preemptor]}
        session.execute(update(Job).where(Job.id == running[stop.victim]).values(**values))
    held_back = [job_id for job_id, job in zip(waiting, of.waiting, strict=True) if job.held_back]
    session.execute(update(Job).where(Job.id.in_(held_back)).values(not_before=now_us() + 3_600_000_000))
    for owner, limits in of.quotas.items():
        users.add(session, owner, Role.MEMBER)
        quotas.set_limits(session, "user", owner, {Resource(name): limit for name, limit in limits.items()})


def _outcome(store: StoreFixture, of: World, box: SchedulerFixture, running: list[str], waiting: list[str]) -> Outcome:
    starts = [(waiting.index(job_id), [device["uuid"] for device in store.job(job_id).devices]) for job_id in box.taken]
    asked = {stop.victim for stop in of.preemptions}
    victims = {number: store.job(job_id).preempted_for for number, job_id in enumerate(running) if number not in asked}
    stops = [(victim, waiting.index(preemptor)) for victim, preemptor in victims.items() if preemptor is not None]
    reasons: dict[int, tuple[str, str]] = {}
    for number, job_id in enumerate(waiting):
        if store.job(job_id).state == JobState.QUEUED and not of.waiting[number].held_back:
            reason = store.reason(job_id)
            reasons[number] = (reason.code, reason.message)
    return Outcome(starts, stops, reasons)


def main() -> None:
    with TemporaryDirectory() as folder:
        databases = SQLiteDatabases(Path(folder))
        for number in range(COUNT):
            with databases.migrated() as url, closing(Database(url)) as database:
                sys.stdout.write(outcome_on(database, world(number)).to_json() + "\n")


if __name__ == "__main__":
    main()
