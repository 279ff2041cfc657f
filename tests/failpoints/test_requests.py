"""The API is killed, or delayed while the same request comes again, around each of its commits and pushes."""

from contextlib import AbstractContextManager
from io import BytesIO
import threading

import pytest
from sqlalchemy import select

from store.blobs import Blobs
from store.db.tables import Garbage, Worker
from store.rows.checkpoints import NewCheckpoint
from tests.failpoints import scenes
from tests.failpoints.child import REFUSED, Child, playing
from tests.failpoints.house import House
from torchyard.contract.errors import NotFound
from torchyard.contract.job import EndReason
from torchyard.contract.records import Manifest, ManifestFile

SIDES = ("before", "after")
POINTS = [
    *((what, f"store.{what}.{side}") for what in scenes.REQUESTS for side in SIDES),
    *(("submit", f"queue.announce.{side}") for side in SIDES),
    *(("resume", f"queue.announce.{side}") for side in SIDES),
    *(("delete", f"store.{what}.{side}") for what in ("collect", "forget_garbage") for side in SIDES),
]
MOVES = {
    "submit": ["queued"],
    "change": ["queued"],
    "cancel": ["queued", "cancelled"],
    "pause": ["queued", "paused"],
    "resume": ["queued", "paused", "queued"],
}

each_point = pytest.mark.parametrize(("what", "point"), POINTS, ids=[f"{what}-{point}" for what, point in POINTS])


@each_point
def test_a_killed_request_is_sent_again(house: House, what: str, point: str) -> None:
    subject = _arrange(house, what)
    with _playing(house, what, subject, plan=f"{point}=kill") as child:
        assert child.wait() == -9
        assert child.acted == [point]
    assert _is_done(house, what, subject) == (point != f"store.{what}.before")
    _again(house, what, subject)
    _check(house, what, subject)


@each_point
def test_a_request_that_is_sent_again_while_the_first_one_hangs(house: House, what: str, point: str) -> None:
    subject = _arrange(house, what)
    with _playing(house, what, subject, plan=f"{point}=stop@1") as child:
        child.wait_for_stop()
        second = threading.Thread(target=_again, args=(house, what, subject))
        second.start()
        second.join(0.15)  # where the first one holds the row, or SQLite's only writer, the second waits for it
        child.go_on()
        assert child.wait() in {0, REFUSED}
        second.join()
    _check(house, what, subject)


def _playing(house: House, what: str, subject: str, *, plan: str) -> AbstractContextManager[Child]:
    return playing(scenes.request, house.settings, what, subject, plan=plan, log=house.log)


def _arrange(house: House, what: str) -> str:
    """What the request is about, such that it has something to do."""
    if what == "submit":
        return ""
    if what == "drain":
        return house.worker()
    if what != "delete":
        job_id = house.queue_up()
        if what == "resume":
            scenes.request(house.settings, "pause", job_id)
        return job_id
    claim = house.running(house.submit(), house.worker())
    blob = Blobs(house.settings.blobs).add(BytesIO(b"state"))
    file = ManifestFile(path="state.pt", size=blob.size, sha256=blob.sha256)
    house.record(claim, seq=0, checkpoints=[NewCheckpoint("c", Manifest(step=1, files=[file]), [file])])
    house.end(claim, EndReason.COMPLETED)
    return claim.job_id


def _is_done(house: House, what: str, subject: str) -> bool:
    if what == "submit":
        return len(house.jobs()) == 1
    if what == "drain":
        return house.read(lambda session: session.get_one(Worker, subject)).drain_requested_at is not None
    if what == "delete":
        return not house.jobs()
    return house.moves(subject) == MOVES[what] and (what != "change" or house.job(subject).priority == 7)


def _again(house: House, what: str, subject: str) -> None:
    try:
        scenes.request(house.settings, what, subject)
    except NotFound:
        assert what == "delete"


def _check(house: House, what: str, subject: str) -> None:
    assert _is_done(house, what, subject)
    if what == "delete":
        scenes.collect(house.settings)
        assert not [path for path in house.settings.blobs.rglob("*") if path.is_file() and path.name != "lock"]
        assert not house.read(lambda session: session.scalars(select(Garbage)).all())
    elif what != "drain":
        (job,) = house.jobs()
        assert house.moves(job.id) == MOVES[what]
        assert (job.finished_at is not None) == (what == "cancel")
    house.check_queue()
