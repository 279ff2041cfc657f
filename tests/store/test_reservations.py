"""Kept places: whoever decides first has decided, and no claim takes what is kept for another job."""

from collections.abc import Callable

import pytest

from scheduling.snapshot import Reservation
from store.announcement import announcement_of
from store.attempts import claim as claims
from store.attempts.facts import Claim
from store.queue import placement, reservations
from store.queue.reservations import Change, changes
from store.tables import Worker
from tests.store.fixture import StoreFixture, placement_on, run_together, store_on
from tests.store.test_races import PAIRS
from torchyard.contract.states import EndReason


def keep(worker: str, job_id: str | None, *, seen: int | None = None, due: int = 5, bound: int = 9) -> Change:
    return Change(worker, "cpu", seen, job_id, due, bound)


def test_a_place_is_kept_for_one_job_and_a_job_has_one_place(db: StoreFixture) -> None:
    one, two = sorted(db.worker(name) for name in ("one", "two"))
    first, second = db.submit(owner="bob"), db.submit()
    assert db.reserve(keep(one, first, due=7, bound=8))
    assert db.read(reservations.kept_places) == [Reservation(one, "cpu", first, "bob", 7, 8, 0, 1)]
    assert not db.reserve(keep(one, second)), "it was seen as free"
    assert not db.reserve(keep(two, first)), "the job has a place"
    assert not db.reserve(keep(two, second), keep(one, None)), "all of the changes, or none"
    assert db.kept() == {one: (first, 1)}
    assert db.reserve(keep(one, second, seen=1), keep(two, first)), "the job moves, and another gets its place"
    assert db.kept() == {one: (second, 3), two: (first, 1)}
    assert db.reserve(keep(one, first, seen=3), keep(two, second, seen=1)), "they change places"
    assert db.kept() == {one: (first, 5), two: (second, 3)}
    assert db.reserve(keep(one, None, seen=5))
    assert not db.reserve(keep(one, None, seen=5))
    assert db.reserve(keep(one, first)), "a place that is kept for nobody has no version"
    assert db.kept()[one] == (first, 7), "no version comes twice"


def test_only_what_waits_gets_a_place_and_only_where_jobs_start(db: StoreFixture) -> None:
    worker, draining = db.worker(), db.worker("away")
    queued, held_back, paused, runs = (db.submit() for _ in range(4))
    db.hold_back(held_back, seconds=60)
    db.pause(paused)
    db.running(runs, db.worker("other"))
    db.drain(draining)
    for job_id in (held_back, paused, runs, "job_unknown"):
        assert not db.reserve(keep(worker, job_id))
    assert not db.reserve(keep(draining, queued))
    assert not db.reserve(keep("wrk_unknown", queued))
    assert not db.reserve(keep(worker, queued), keep(draining, queued))
    assert db.kept() == {}
    assert db.reserve()


def test_who_starts_where_its_place_is_wakes_nobody(db: StoreFixture) -> None:
    def wakes(claimed_on: str) -> bool:
        with db.database.write() as session:
            placed = placement_on(claimed_on, "slot-0")
            version = reservations.version_of(session, claimed_on, "cpu")
            assert claims.claim(session, job_id, placed, reservation=version) is not None
            return announcement_of(session).wakes_workers

    one, two = db.worker("one"), db.worker("two")
    job_id = db.submit()
    assert db.reserve(keep(one, job_id))
    assert not wakes(one), "it plans again anyway"
    runs, job_id = job_id, db.submit()
    assert db.reserve(keep(one, job_id), known={(runs, one)})
    assert wakes(two), "others may start on the place that it leaves"


@pytest.mark.parametrize("leave", [StoreFixture.cancel, StoreFixture.pause])
def test_who_leaves_the_line_leaves_its_place(db: StoreFixture, leave: Callable[[StoreFixture, str], object]) -> None:
    worker, job_id = db.worker(), db.submit()
    assert db.reserve(keep(worker, job_id))
    leave(db, job_id)
    assert db.kept() == {}


def test_who_starts_leaves_its_place_wherever_that_is(db: StoreFixture) -> None:
    one, two, job_id = db.worker("one"), db.worker("two"), db.submit()
    assert db.reserve(keep(one, job_id))
    claim = db.claim(job_id, one, reservation=1)
    assert claim is not None
    assert db.kept() == {}
    db.end(claim, EndReason.PREEMPTED)
    assert db.reserve(keep(one, job_id))
    assert db.claim(job_id, two) is not None
    assert db.kept() == {}
    db.cancel(job_id)


def test_a_claim_needs_the_reservation_that_its_plan_saw(db: StoreFixture) -> None:
    worker, other = db.worker(), db.worker("other")
    holder, passing = db.submit(), db.submit()
    assert db.reserve(keep(worker, holder))
    for wrong in (None, 2):
        assert db.claim(passing, worker, "a", reservation=wrong) is None
        assert db.claim(holder, worker, "a", reservation=wrong) is None
    assert db.claim(passing, other, "a", reservation=1) is None, "the other place is kept for nobody"
    claim = db.claim(passing, worker, "a", reservation=1, guest=True)
    assert claim is not None
    assert db.attempt(claim).guest
    assert db.kept() == {worker: (holder, 1)}, "a job that passes leaves the place as it is"
    started = db.claim(holder, worker, "b", reservation=1)
    assert started is not None
    assert not db.attempt(started).guest


def test_no_place_is_kept_by_a_plan_that_does_not_know_what_runs_there(db: StoreFixture) -> None:
    worker, other = db.worker(), db.worker("other")
    holder, runs = db.submit(), db.submit()
    claim = db.running(runs, worker, "a")
    for known in ({(holder, worker)}, {(runs, other)}):
        assert not db.reserve(keep(worker, holder), known=known)
    assert db.reserve(keep(other, holder)), "nothing runs on the other worker"
    assert db.reserve(keep(other, None, seen=1))
    assert db.reserve(keep(worker, holder), known={(runs, worker)})
    assert not db.reserve(keep(worker, holder, seen=1, due=6)), "its new times would be wrong"
    db.end(claim, EndReason.COMPLETED)
    assert db.reserve(keep(worker, holder, seen=1, due=6))


def test_a_place_of_the_other_kind_is_another_place(db: StoreFixture) -> None:
    worker, holder = db.worker(), db.submit()
    assert db.reserve(Change(worker, "cuda", None, holder, 5, 9))
    assert db.claim(db.submit(), worker, "slot-0") is not None


def test_no_place_is_kept_on_workers_that_drain_or_are_lost(db: StoreFixture) -> None:
    drains, lost, works = (db.worker(name) for name in ("drains", "lost", "works"))
    holders = {worker: db.submit() for worker in (drains, lost, works)}
    assert db.reserve(*(keep(worker, job_id) for worker, job_id in holders.items()))
    db.drain(drains)
    assert drains not in db.kept()
    store = store_on(db.database)
    placement.free_idle_places(store)
    assert db.kept().keys() == {lost, works}
    db.write(lambda session: setattr(session.get_one(Worker, lost), "seen_at", 0))
    placement.free_idle_places(store)
    assert db.kept().keys() == {works}


def test_changes_lead_from_what_was_seen_to_what_is_wanted() -> None:
    def kept(worker: str, job_id: str, due: int = 1, version: int = 4) -> Reservation:
        return Reservation(worker, "cuda", job_id, "ada", due, 9, 3, version)

    seen = [kept("a", "one"), kept("b", "two"), kept("c", "three"), kept("d", "four")]
    wanted = [kept("d", "four", version=1), kept("c", "three", due=2), kept("b", "five"), kept("e", "two")]
    assert changes(seen, wanted) == [
        Change("a", "cuda", 4, None),
        Change("b", "cuda", 4, "five", 1, 9, 3),
        Change("c", "cuda", 4, "three", 2, 9, 3),
        Change("e", "cuda", None, "two", 1, 9, 3),
    ]
    assert changes(seen, reversed(seen)) == []


def test_two_decisions_about_one_place_have_one_winner(db: StoreFixture) -> None:
    for _ in range(PAIRS):
        worker, one, two = db.worker(), db.submit(), db.submit()
        won = run_together(lambda: db.reserve(keep(worker, one)), lambda: db.reserve(keep(worker, two)))  # noqa: B023
        assert sorted(map(bool, won)) == [False, True], won
        assert db.kept()[worker] == ((one, two)[won.index(True)], 1)


def test_decisions_about_several_places_in_opposite_order_have_one_winner(db: StoreFixture) -> None:
    for _ in range(PAIRS):
        a, b, one, two = db.worker("a"), db.worker("b"), db.submit(), db.submit()
        won = run_together(
            lambda: db.reserve(keep(a, one), keep(b, two)),  # noqa: B023
            lambda: db.reserve(keep(b, one), keep(a, two)),  # noqa: B023
        )
        assert sorted(map(bool, won)) == [False, True], won


def test_a_reservation_and_a_claim_have_one_winner(db: StoreFixture) -> None:
    for _ in range(PAIRS):
        worker, holder, other = db.worker(), db.submit(), db.submit()
        kept, claim = run_together(
            lambda: db.reserve(keep(worker, holder)),  # noqa: B023
            lambda: db.claim(other, worker),  # noqa: B023
        )
        assert isinstance(claim, Claim) is not kept, (kept, claim)
        assert db.kept() == ({worker: (holder, 1)} if kept else {})
        if kept:
            db.cancel(holder)


def test_claims_on_a_kept_place_and_its_end_have_one_outcome(db: StoreFixture) -> None:
    for _ in range(PAIRS):
        worker, holder, other = db.worker(), db.submit(), db.submit()
        assert db.reserve(keep(worker, holder))
        passed, started, blind = run_together(
            lambda: db.claim(other, worker, "a", reservation=1),  # noqa: B023
            lambda: db.claim(holder, worker, "b", reservation=1),  # noqa: B023
            lambda: db.claim(other, worker, "c"),  # noqa: B023
        )
        assert isinstance(started, Claim)
        assert [type(passed), type(blind)].count(Claim) <= 1, (passed, blind)
        assert db.kept() == {}


def test_a_job_that_is_cancelled_while_it_gets_a_place_has_none(db: StoreFixture) -> None:
    for _ in range(PAIRS):
        worker, holder = db.worker(), db.submit()
        kept, _ = run_together(lambda: db.reserve(keep(worker, holder)), lambda: db.cancel(holder))  # noqa: B023
        assert isinstance(kept, bool), kept
        assert worker not in db.kept()


def test_a_worker_that_drains_while_it_gets_a_place_keeps_none(db: StoreFixture) -> None:
    for _ in range(PAIRS):
        worker, holder = db.worker(), db.submit()
        kept, _ = run_together(lambda: db.reserve(keep(worker, holder)), lambda: db.drain(worker))  # noqa: B023
        assert isinstance(kept, bool), kept
        assert worker not in db.kept()
