"""A daemon is killed or delayed around its other writes: its own row, leases, rescues and cleanup."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from io import BytesIO
import json

import pytest
from sqlalchemy import insert, select

from store.announcement import Announcement
from store.attempts import state as attempts
from store.blobs.folder import BlobFolder
from store.jobs import jobs
from store.output.facts import MetricPoint, NewEvent, NewLines
from store.tables import Garbage, PointChunk
from tests import line
from tests.failpoints import actions
from tests.failpoints.armed import ArmedProcess, started, until
from tests.failpoints.fixture import FailpointFixture
from torchyard.contract.attempts.records import ProcessIdentity
from torchyard.contract.states import EndReason

SIDES = ("before", "after")
POINTS = [
    *(f"store.{what}.{side}" for what in ("register", "heartbeat", "renew", "rescue", "sweep") for side in SIDES),
    *(
        f"store.{what}.{side}"
        for what in (
            *("collect", "forget_garbage", "trim_log", "trim_events"),
            *("delete_tombstones", "trim_samples", "add_up_counts", "join_points"),
        )
        for side in SIDES
    ),
    *(f"queue.{what}.{side}" for what in ("rebuild", "announce") for side in SIDES),
]
GPU = {"device": "cuda"}
"""What no worker here has: nothing is started."""


@dataclass
class Backlog:
    """What a starting worker must clean up."""

    service: FailpointFixture
    lost: str
    """A job whose worker has disappeared."""
    own: str
    """A job that the worker was starting when it died."""
    forgotten: str
    """A job that is missing in Redis."""
    blob: str
    """The blob of a removed checkpoint."""
    ended: str
    """A finished job whose log and events must be removed, and whose points must be joined."""

    def play(self, plan: str) -> AbstractContextManager[ArmedProcess]:
        settings = self.service.settings.model_copy(update={"keep_logs": timedelta(), "keep_events": timedelta()})
        return started(actions.run_daemon, settings, 300, 0.2, plan=plan, log=self.service.log)

    def is_done(self) -> bool:
        _ring(self.service)
        rows = [job_id for job_id, _ in self.service.read(jobs.queued)]
        return (
            set(rows) == {self.lost, self.own, self.forgotten}
            and line.waiting(self.service.queue) == rows
            and not BlobFolder(self.service.settings.blobs).path(self.blob).exists()
            and not self.service.everything()["garbage"]
            and self.service.lines(self.ended) == []
            and self.service.told(self.ended) == []
            and len(self.chunks()) == 1
        )

    def chunks(self) -> Sequence[PointChunk]:
        query = select(PointChunk).where(PointChunk.job_id == self.ended)
        return self.service.read(lambda session: session.scalars(query).all())

    def check(self) -> None:
        for job_id in (self.lost, self.own):
            assert self.service.moves(job_id) == ["queued", "starting", "queued"]
            assert [row.end_reason for row in self.service.attempts(job_id)] == ["worker_lost"]
        # Each removal is said once, by the service itself.
        said = [event.data["text"] for event in self.service.events(self.ended) if event.type == "message"]
        assert len(said) == len({text.split()[0] for text in said}) == 2
        assert self.service.points(self.ended) == [(1, 1), (1, 2)]
        assert self.service.held() == {}


@pytest.fixture
def backlog(service: FailpointFixture) -> Backlog:
    worker = service.worker()
    (service.settings.root / "worker.json").write_text(json.dumps({"id": worker}))
    own = service.starting(service.submit(resources=GPU), worker)
    gone = ProcessIdentity(pid=1, start_time=1, boot_id="another").to_dict()
    service.write(lambda session: attempts.mark_launched(session, own, gone))
    lost = service.starting(service.submit(resources=GPU), service.worker("gone"))
    service.expire(lost)
    blob = BlobFolder(service.settings.blobs).add(BytesIO(b"state")).sha256
    service.write(lambda session: session.execute(insert(Garbage).values(sha256=blob)))
    ended = service.running(service.submit(), service.worker("other"))
    lines, event = [NewLines(0, "stdout", ["a line"])], NewEvent("message", {"level": "info", "text": "a word"}, 1)
    service.record(ended, seq=0, points=[MetricPoint("loss", 1, 0.5, 1)], lines=lines, events=[event])
    service.record(ended, seq=1, points=[MetricPoint("loss", 2, 0.5, 1)])
    service.end(ended, EndReason.COMPLETED)
    return Backlog(service, lost.job_id, own.job_id, service.submit(resources=GPU), blob, ended.job_id)


@pytest.mark.parametrize("point", POINTS)
def test_the_next_daemon_continues_after_a_kill(backlog: Backlog, point: str) -> None:
    with backlog.play(f"{point}=kill") as child:
        until(lambda: _ring(backlog.service) or not child.runs, "the kill", every=0.05)
        assert child.wait() == -9
        assert child.acted == [point]
    backlog.service.let_removals_end()
    with backlog.play("") as child:
        until(backlog.is_done, "all is in order", every=0.05)
    backlog.check()


@pytest.mark.thorough
def test_a_daemon_completes_its_work_with_every_step_delayed(backlog: Backlog) -> None:
    with backlog.play(";".join(f"{point}=delay:0.02" for point in POINTS)) as child:
        until(lambda: backlog.is_done() and set(child.acted) == set(POINTS), "all is in order", every=0.05)
    backlog.check()


@pytest.mark.thorough
@pytest.mark.parametrize("point", POINTS)
def test_a_daemon_completes_its_work_with_one_delayed_step(backlog: Backlog, point: str) -> None:
    with backlog.play(f"{point}=delay:0.1") as child:
        until(lambda: backlog.is_done() and child.acted, "all is in order", every=0.05)
    backlog.check()


def _ring(service: FailpointFixture) -> None:
    """Wakes the daemon, so that the test does not wait for its interval."""
    service.queue.announce(Announcement(wakes_workers=True))
