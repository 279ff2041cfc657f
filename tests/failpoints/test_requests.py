"""The API is killed, or delayed while the request is repeated, around each of its commits and pushes."""

from contextlib import AbstractContextManager
from io import BytesIO

import pytest
from sqlalchemy import select

from store.attempts import stacks
from store.blobs.folder import BlobFolder
from store.output.facts import NewCheckpoint
from store.tables import Bundle, Garbage, ModelVersion, Reach, Worker
from store.team import users
from store.team.callers import SERVICE
from tests import line
from tests.api.bundles import packed
from tests.failpoints import actions
from tests.failpoints.armed import REFUSED, ArmedProcess, started
from tests.failpoints.beside import beside
from tests.failpoints.fixture import FailpointFixture
from torchyard.contract.attempts.records import Manifest, ManifestFile
from torchyard.contract.errors import NotFound
from torchyard.contract.states import EndReason
from torchyard.contract.team.roles import Role

SIDES = ("before", "after")
POINTS = [
    *((what, f"store.{what}.{side}") for what in actions.REQUESTS for side in SIDES),
    *(("submit", f"queue.announce.{side}") for side in SIDES),
    *(("resume", f"queue.announce.{side}") for side in SIDES),
    *(("bundle", f"store.upload.{side}") for side in SIDES),
    *(("bundle", f"blob.{step}") for step in ("fsync", "rename", "renamed")),
    *(("delete", f"store.{what}.{side}") for what in ("collect", "forget_garbage") for side in SIDES),
]
NOT_DONE = {f"store.{what}.before" for what in actions.REQUESTS} | {
    *(f"store.upload.{side}" for side in SIDES),
    *("blob.fsync", "blob.rename", "blob.renamed"),
}
"""Where a request that is killed has had no effect."""
MOVES = {
    "submit": ["queued"],
    "change": ["queued"],
    "cancel": ["queued", "cancelled"],
    "pause": ["queued", "paused"],
    "resume": ["queued", "paused", "queued"],
}

each_point = pytest.mark.parametrize(("what", "point"), POINTS, ids=[f"{what}-{point}" for what, point in POINTS])


@each_point
def test_a_repeated_request_completes_a_killed_one(service: FailpointFixture, what: str, point: str) -> None:
    subject = _arrange(service, what)
    with _playing(service, what, subject, plan=f"{point}=kill") as child:
        assert child.wait() == -9
        assert child.acted == [point]
    assert _is_done(service, what, subject) == (point not in NOT_DONE)
    _again(service, what, subject)
    _check(service, what, subject)


@each_point
def test_a_repeated_request_beside_a_hung_one_has_one_effect(service: FailpointFixture, what: str, point: str) -> None:
    subject = _arrange(service, what)
    with _playing(service, what, subject, plan=f"{point}=stop@1") as child:
        child.wait_for_stop()
        with beside(service.database, _again, service, what, subject):
            child.go_on()
            assert child.wait() in {0, REFUSED}
    _check(service, what, subject)


@pytest.mark.parametrize("hit", [1, 2, 3])
@pytest.mark.parametrize("side", SIDES)
def test_each_of_many_submissions_of_a_killed_process_is_answered_or_stored_once_when_repeated(
    service: FailpointFixture, side: str, hit: int
) -> None:
    point, answered = f"store.submit.{side}", service.folder / "answered"
    answered.touch()
    with started(
        actions.submit_many, service.settings, 100, answered, plan=f"{point}=kill@{hit}", log=service.log
    ) as child:
        assert child.wait() == -9
        assert child.acted == [point]
    told, stored = set(answered.read_text().split()), {job.id for job in service.jobs()}
    assert told <= stored
    assert len(stored) < 100 if side == "before" else told < stored  # the last commit may have held all that were left
    actions.submit_many(service.settings, 100, answered)
    jobs = service.jobs()
    assert len(jobs) == 100
    assert stored <= {job.id for job in jobs}
    assert {*answered.read_text().split()} == {job.id for job in jobs}
    assert all(service.moves(job.id) == ["queued"] for job in jobs)
    line.sweep(service.queue, service.database)
    assert sorted(line.waiting(service.queue)) == [job.id for job in jobs]


@pytest.mark.parametrize("hit", [1, 3])
@pytest.mark.parametrize("point", ["store.submit.before", "store.submit.after", "queue.announce.before"])
def test_a_batch_that_was_killed_goes_on_where_it_stopped(service: FailpointFixture, point: str, hit: int) -> None:
    answered, parts = service.folder / "answered", 4
    with started(
        actions.submit_batch, service.settings, parts, answered, plan=f"{point}=kill@{hit}", log=service.log
    ) as child:
        assert child.wait() == -9
        assert child.acted == [point]
    assert not answered.exists()
    stored = [job.id for job in service.jobs()]
    assert len(stored) == 10 * (hit - 1 if point.endswith("submit.before") else hit)
    actions.submit_batch(service.settings, parts, answered)
    made = answered.read_text().split()
    assert made[: len(stored)] == stored
    assert made == [job.id for job in service.jobs()]
    assert len({*made}) == 10 * parts
    actions.submit_batch(service.settings, parts, answered)
    assert answered.read_text().split() == made
    line.sweep(service.queue, service.database)
    assert sorted(line.waiting(service.queue)) == sorted(made)


def _playing(service: FailpointFixture, what: str, subject: str, *, plan: str) -> AbstractContextManager[ArmedProcess]:
    return started(actions.request, service.settings, what, subject, plan=plan, log=service.log)


def _arrange(service: FailpointFixture, what: str) -> str:
    """Creates the subject of the request, such that the request has an effect."""
    if what in {"submit", "bundle"}:
        return ""
    if what == "drain":
        return service.worker()
    if what == "team":
        service.write(lambda session: users.add(session, "bob", Role.MEMBER, caller=SERVICE))
        return "bob"
    if what in {"stacks", "reach"}:
        return service.running(service.submit(), service.worker()).job_id
    if what not in {"delete", "model"}:
        job_id = service.submit_queued()
        if what == "resume":
            actions.request(service.settings, "pause", job_id)
        return job_id
    claim = service.running(service.submit(), service.worker())
    blob = BlobFolder(service.settings.blobs).add(BytesIO(b"state"))
    file = ManifestFile(path="state.pt", size=blob.size, sha256=blob.sha256)
    service.record(claim, seq=0, checkpoints=[NewCheckpoint("c", Manifest(step=1, files=[file]), [file])])
    service.end(claim, EndReason.COMPLETED)
    return claim.job_id


def _is_done(service: FailpointFixture, what: str, subject: str) -> bool:
    match what:
        case "submit":
            done = len(service.jobs()) == 1
        case "drain":
            done = service.read(lambda session: session.get_one(Worker, subject)).drain_requested_at is not None
        case "team":
            done = service.read(lambda session: users.find(session, subject)).disabled_at is not None
        case "delete":
            done = not service.jobs()
        case "bundle":
            done = service.read(lambda session: session.scalars(select(Bundle)).first()) is not None
        case "model":
            versions = service.read(lambda session: session.scalars(select(ModelVersion.version)).all())
            assert versions in ([], [1])
            done = bool(versions)
        case "stacks":
            done = service.read(lambda session: stacks.read(session, subject)).requested_at is not None
        case "reach":
            opened = service.read(lambda session: session.scalars(select(Reach.job_id)).all())
            assert {*opened} <= {subject}, "a client that asks again has another reach"
            done = bool(opened)
        case _:
            done = service.moves(subject) == MOVES[what] and (what != "change" or service.job(subject).priority == 7)
    return done


def _again(service: FailpointFixture, what: str, subject: str) -> None:
    try:
        actions.request(service.settings, what, subject)
    except NotFound:
        assert what == "delete"


def _check(service: FailpointFixture, what: str, subject: str) -> None:
    assert _is_done(service, what, subject)
    if what == "delete":
        service.let_removals_end()
        actions.collect(service.settings)
        assert not [*service.settings.blobs.glob("??/*"), *service.settings.blobs.glob("incoming/*")]
        assert not service.read(lambda session: session.scalars(select(Garbage)).all())
    elif what == "bundle":
        actions.collect(service.settings)
        files = [*service.settings.blobs.glob("??/*"), *service.settings.blobs.glob("incoming/*")]
        assert [path.read_bytes() for path in files] == [packed().tar]
        assert not service.read(lambda session: session.scalars(select(Garbage)).all())
    elif what not in {"drain", "team", "stacks", "reach", "model"}:
        (job,) = service.jobs()
        assert service.moves(job.id) == MOVES[what]
        assert (job.finished_at is not None) == (what == "cancel")
    service.check_queue()
