"""What a worker asks, by the database and over HTTP: both drivers answer alike."""

from dataclasses import replace
import math

import pytest

from store.attempts import folders, keeping, stacks
from store.reaches import reaches
from store.reaches.facts import ReachOrder
from store.team import users
from store.team.callers import SERVICE, Caller
from store.worker.protocol import Verbs
from store.worker.records import (
    Answer,
    Batch,
    Begun,
    HostOffer,
    MetricPoint,
    NewEvent,
    NewLines,
    Prepared,
)
from store.worker.verbs import WorkerStore
from tests.store.fixture import store_on
from tests.worker.remote.conftest import Remote
from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.cluster.devices import DeviceReport, EnvironmentReport, StartsReport
from torchyard.contract.errors import StaleClaim
from torchyard.contract.reach.orders import Order, Terminal
from torchyard.contract.states import EndReason, JobState, Reason
from torchyard.contract.team.roles import Role
from torchyard.contract.telemetry.views import LiveLine

SLOT = DeviceReport(index=0, uuid="cpu-0", name="CPU slot", kind="cpu", utilization=0.5)
COLD = StartsReport(mode="cold")


@pytest.fixture(params=["direct", "remote"])
def verbs(remote: Remote, request: pytest.FixtureRequest) -> Verbs:
    worker = remote.store.worker("box-a")
    if request.param == "remote":
        made = remote.join(worker).verbs
    else:
        made = WorkerStore(store_on(remote.database, queue=remote.queue), worker)
    assert made.register("box-a", HostOffer([SLOT])).name == "box-a"
    return made


def test_the_life_of_an_attempt(remote: Remote, verbs: Verbs) -> None:
    store = remote.store
    job_id = store.submit(name="digits")
    claim = store.starting(job_id, verbs.worker_id, "cpu-0")
    assert verbs.list_open() == [claim]
    assert verbs.register("box-a", HostOffer([SLOT])).claims == [claim]

    facts = verbs.read(claim)
    assert (facts.owner, facts.spec["name"], [*facts.devices], facts.world_size) == ("ada", "digits", ["cpu-0"], 1)
    assert (facts.launcher, facts.relay_seq, facts.in_pool, facts.wanted.end) == (None, 0, False, None)

    verbs.change(claim, Reason("starting", "installs packages"))
    assert store.reason(job_id).message == "installs packages"
    verbs.change(claim, EnvironmentReport(name="env", path="/env"))
    verbs.change(claim, Prepared(start_step=3))
    verbs.change(claim, Begun(launcher={"pid": 7}))
    row = store.attempt(claim)
    assert (row.start_step, row.launcher, (row.environment or {})["name"]) == (3, {"pid": 7}, "env")

    batch = Batch(
        offsets={"events.jsonl": 9},
        points=[MetricPoint("loss", 4, 0.5, 1), MetricPoint("loss", 5, math.nan, 2)],
        lines=[NewLines(0, "stdout", ["eins", "zwei ✓"])],
        events=[NewEvent("message", {"level": "info", "text": "hello"}, 1, limited=True)],
        progress={"step": 5},
    )
    begun = Begun(running=Reason("running", "runs"))
    assert verbs.append(claim, batch, seq=0, begun=begun) == frozenset()
    before = store.everything()
    assert verbs.append(claim, batch, seq=0, begun=begun) == frozenset()  # its answer was lost
    assert store.everything() == before
    assert (store.job(job_id).state, store.attempt(claim).relay_seq) == (JobState.RUNNING, 1)
    assert [event.data["text"] for event in store.events(job_id) if event.type == "message"] == ["hello"]
    assert math.isnan(store.series(job_id)["loss"].values[-1])

    verbs.show([LiveLine(job_id=job_id, attempt=1, rank=0, stream="stdout", text="50%")])
    verbs.answer_stacks(claim, Answer(requested_at=1, taken_at=2, ranks=[{"rank": 0, "text": "x"}]))
    answer = store.read(lambda session: stacks.read(session, job_id).answer)
    assert answer is not None and answer["ranks"] == [{"rank": 0, "text": "x"}]
    ada, order = Caller("ada", Role.MEMBER), Order(kind="program", argv=["cat", "ü"], terminal=Terminal(rows=9))
    store.write(lambda session: users.add(session, "ada", role=ada.role, caller=SERVICE))
    opened = store.write(lambda session: reaches.open_reach(session, job_id, order, caller=ada))
    assert [*verbs.read_wanted(claim).reaches] == [ReachOrder(opened.id, "start", 1, opened.secret, order)]
    store.cancel(job_id)
    assert verbs.read_wanted(claim).end is EndReason.CANCELLED

    report = ExitReport(reason=EndReason.CANCELLED, message="cancelled")
    assert verbs.end(claim, report, requested_stops={EndReason.CANCELLED}) is JobState.CANCELLED
    for late in (verbs.read, verbs.read_wanted):
        with pytest.raises(StaleClaim):
            late(claim)
    with pytest.raises(StaleClaim):
        verbs.end(claim, report)
    assert verbs.list_open() == []


def test_heartbeats_renew_leases_and_tell_what_is_wanted_of_the_worker(remote: Remote, verbs: Verbs) -> None:
    store = remote.store
    claim = store.starting(store.submit(), verbs.worker_id, "cpu-0")
    other = store.starting(store.submit(), store.worker("box-b"), "cpu-0")
    verbs.heartbeat(HostOffer([SLOT]), starts=COLD)
    until = store.attempt(claim).lease_until
    assert verbs.renew([claim.attempt_id, other.attempt_id]) == {claim.attempt_id}
    assert store.attempt(claim).lease_until > until
    assert not verbs.is_draining()
    store.drain(verbs.worker_id)
    verbs.renew([claim.attempt_id])
    assert verbs.is_draining()


def test_the_past_of_a_job(remote: Remote, verbs: Verbs) -> None:
    store = remote.store
    job_id = store.submit(max_restarts=2)
    first = store.running(job_id, verbs.worker_id, "cpu-0")
    store.record(first, seq=0, offsets={"a": 1}, events=[NewEvent("message", {"level": "info", "text": "hi"}, 1)])
    store.end(first, EndReason.USER_ERROR, "broke")
    store.hold_back(job_id, seconds=-1)
    claim = store.starting(job_id, verbs.worker_id, "cpu-0")
    history = verbs.history
    assert [(each.number, each.offsets) for each in history.list_attempts(job_id, before=2)] == [(1, {"a": 1})]
    assert history.count_ended(claim, EndReason.USER_ERROR, since=1, why="br") == 1
    assert history.list_messages(job_id, attempt=1) == ["hi"]
    assert (history.list_checkpoints(job_id), history.find_checkpoint(job_id, "ckpt_1")) == ([], None)
    assert (history.list_files(job_id), history.find_initial(job_id)) == (([], []), None)
    assert (history.list_captured_names(job_id), history.list_published_names(claim)) == ([], [])
    assert history.find_removed(job_id, attempt=1, names={"a"}) == set()
    assert (verbs.read_room(job_id).stored, verbs.read_secrets(job_id).values) == ([], {})


def test_what_is_on_the_host(remote: Remote, verbs: Verbs) -> None:
    store = remote.store
    job_id = store.submit()
    claim = store.starting(job_id, verbs.worker_id, "cpu-0")
    known = verbs.folders.find_known([job_id, "job_gone"])
    assert [*known] == [job_id] and (known[job_id].runs, known[job_id].attempts) == (True, {1: None})
    assert (verbs.folders.list_active_owners(), len(verbs.folders.list_active_specs("ada"))) == ({"ada"}, 1)
    verbs.folders.store_sizes({job_id: 5})
    assert verbs.folders.list_deleted([job_id]) == []
    assert store.read(lambda session: folders.read_sizes(session, claim.worker_id)) == {job_id: 5}


def test_files_that_somebody_asks_for(remote: Remote, verbs: Verbs) -> None:
    store = remote.store
    ended = store.starting(store.submit(config={"code": f"bundle:sha256:{'0' * 64}"}), verbs.worker_id, "cpu-0")
    store.complete(ended)
    store.write(lambda session: keeping.ask(session, ended.job_id, ["a.txt"]))
    (order,) = verbs.list_keep_orders(limit=5)
    assert (order.job_id, order.paths, order.owner) == (ended.job_id, ("a.txt",), "ada")
    with pytest.raises(StaleClaim):
        verbs.answer_keep(replace(order, requested_at=1), refused=None)
    verbs.keep_files(order, [], copied=3)
    verbs.answer_keep(order, refused="it is gone")
    view = store.read(lambda session: keeping.find_newest(session, ended.job_id))
    assert (view.copied, view.refused) == (3, "it is gone")
