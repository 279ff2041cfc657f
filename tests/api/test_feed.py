"""What the feed keeps of jobs and lists between its reads, without a server, a database or a clock."""

import asyncio

from api.streams.lists import ListChanges
from api.streams.live import Live, Watch
from api.streams.rows import ChangedRows
from api.streams.subscription import MOST_PENDING, ListedRow, Subscription
from api.streams.throttle import Throttle
from api.streams.watched import READ_S, WatchedJobs
from store.jobs.facts import DisplayedReason, Head, ListedJob
from store.team.callers import Caller
from torchyard.contract.states import JobState
from torchyard.contract.team.roles import Role
from torchyard.contract.telemetry.views import StreamTopic

NOW = 1000.0
ALICE, BOB, OPERATOR = Caller("alice", Role.MEMBER), Caller("bob", Role.MEMBER), Caller("olga", Role.OPERATOR)


def listed(job_id: str, *, owner: str = "alice", starred_by: frozenset[str] = frozenset()) -> ListedRow:
    job = ListedJob(
        id=job_id,
        name="digits",
        trainer="script",
        state=JobState.QUEUED,
        reason=DisplayedReason("queued", "", 1),
        in_line=1,
        owner=owner,
        visibility="private",
        priority=0,
        labels={},
        attempt=0,
        retry_of=None,
        schedule_id=None,
        progress=None,
        metrics={},
        monitor="val/loss",
        best=None,
        devices=[],
        error=None,
        created_at=1,
        started_at=None,
        finished_at=None,
        archived_at=None,
        has_notes=False,
        starred_by=starred_by,
        version=1,
        position=1,
    )
    return ListedRow(job, b"whole", b"starred" if starred_by else None, b"withheld")


def subscribed(caller: Caller, *topics: StreamTopic, jobs: frozenset[str] = frozenset()) -> Subscription:
    """A stream that nothing feeds. Its event loop is only needed to make it."""

    async def make() -> Subscription:
        return Subscription(Watch(Live("", service=str)), caller, frozenset(topics), set(jobs))

    return asyncio.run(make())


def test_a_throttle_opens_once_in_its_seconds() -> None:
    throttle = Throttle(2.0)
    assert [throttle.begin(NOW + step / 2) for step in range(9)] == [True, *[False] * 3, True, *[False] * 3, True]
    assert throttle.next_at == NOW + 6


def test_a_watched_job_is_read_when_it_is_noted_and_its_own_time_has_come() -> None:
    watched = WatchedJobs()
    watched.add({"a": Head(1, 1), "b": Head(5, 1)})
    assert watched.take_due(NOW) == ["a", "b"]
    assert watched.due_at == float("inf")
    watched.note("a")
    watched.note("nobody watches it")
    assert watched.due_at == NOW + READ_S
    assert watched.take_due(NOW) == []
    assert watched.take_due(NOW + READ_S) == ["a"]
    watched.note_all()
    assert watched.take_due(NOW + READ_S) == ["b"]  # `a` was read just now


def test_a_job_that_is_watched_again_keeps_its_newest_position() -> None:
    watched = WatchedJobs()
    watched.add({"a": Head(1, 1)})
    assert watched.update("a", Head(7, 2))
    watched.add({"a": Head(3, 1)})  # read before the other
    assert watched.position("a") == 7
    watched.remove(["a", "b"])
    assert watched.position("a") is None
    assert watched.take_due(NOW) == []


def test_only_another_head_is_news() -> None:
    watched = WatchedJobs()
    watched.add({"a": Head(1, 1)})
    assert not watched.update("a", Head(1, 1))
    assert not watched.update("nobody watches it", Head(9, 9))
    assert watched.update("a", Head(1, 2))
    assert watched.update("a", None)
    assert watched.position("a") == 1  # until the read of its row


def test_rows_are_read_in_bounded_parts_watched_jobs_first() -> None:
    watched = WatchedJobs()
    watched.add({"watched": Head(1, 1)})
    rows = ChangedRows(watched)
    assert all(rows.note(str(number)) for number in range(150))
    rows.note("watched")
    first = rows.take_due(NOW)
    assert (len(first), next(iter(first))) == (100, "watched")
    assert rows.take_due(NOW) == {}
    assert len(rows.take_due(rows.due_at)) == 51
    assert rows.due_at == float("inf")


def test_a_row_that_could_not_be_read_is_still_one_that_moved() -> None:
    rows = ChangedRows(WatchedJobs())
    rows.note("a", moved=True)
    rows.note("a")
    taken = rows.take_due(NOW)
    assert taken == {"a": True}
    rows.note("a")
    rows.note_again(taken)
    assert rows.take_due(NOW + 10) == {"a": True}


def test_a_job_that_moves_during_its_read_is_read_and_told_again() -> None:
    rows = ChangedRows(WatchedJobs())
    rows.note("a", moved=True)
    rows.take_due(NOW)
    rows.note("a", moved=True)
    assert rows.take_due(NOW + 10) == {"a": True}


def test_of_too_many_rows_only_watched_ones_are_noted() -> None:
    watched = WatchedJobs()
    watched.add({"watched": Head(1, 1)})
    rows = ChangedRows(watched)
    assert all(rows.note(str(number)) for number in range(MOST_PENDING))
    assert not rows.note("one more")
    assert rows.note("watched")


def test_lists_are_told_at_most_once_a_second() -> None:
    lists = ListChanges()
    mine = subscribed(ALICE, "queue", "jobs")
    lists.note_topic("queue")
    lists.note_topic("workers")
    lists.tell([mine], now=NOW)
    assert (mine.hints, mine.listed) == ({"queue"}, {})  # it did not ask for workers
    mine.hints.clear()
    lists.note_topic("queue")
    lists.tell([mine], now=NOW)
    assert mine.hints == set()
    lists.tell([mine], now=lists.due_at)
    assert mine.hints == {"queue"}
    assert lists.due_at == float("inf")


def test_lists_name_a_job_only_to_those_who_may_list_it() -> None:
    lists = ListChanges()
    lists.note_job("job_a", row=listed("job_a"), deleted=False)
    hers = subscribed(ALICE, "jobs")
    his = subscribed(BOB, "jobs")
    operators = subscribed(OPERATOR, "jobs")
    lists.tell([hers, his, operators], now=NOW)
    assert (hers.listed, his.listed, operators.listed) == ({"job_a": False}, {}, {"job_a": False})


def test_a_deleted_job_of_an_unknown_owner_is_told_without_its_name() -> None:
    lists = ListChanges()
    lists.note_job("job_a", row=None, deleted=True)
    hers = subscribed(ALICE, "jobs")
    operators = subscribed(OPERATOR, "jobs")
    lists.tell([hers, operators], now=NOW)
    assert (hers.listed, operators.listed) == ({None: False}, {"job_a": True})


def test_a_row_is_sent_as_its_reader_may_see_it_and_not_twice() -> None:
    mine = subscribed(OPERATOR, jobs=frozenset({"job_a"}))
    mine.give_row(listed("job_a"))
    assert mine.rows == {"job_a": b"withheld"}
    mine.rows.clear()
    mine.give_row(listed("job_a"))
    mine.give_row(listed("job_b"))  # which it did not ask for
    assert mine.rows == {}


def test_too_many_changes_for_a_slow_reader_become_one_without_a_name() -> None:
    mine = subscribed(ALICE, "jobs")
    for number in range(MOST_PENDING + 1):
        mine.give_listed(str(number), deleted=False)
    assert mine.listed == {None: False}


def test_a_row_shows_its_star_to_who_has_set_it() -> None:
    row = listed("a", starred_by=frozenset({"alice"}))
    assert [row.shown_to(caller) for caller in (ALICE, BOB, OPERATOR)] == [b"starred", None, b"withheld"]
    assert listed("a").shown_to(ALICE) == b"whole"
