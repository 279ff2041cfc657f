"""Log lines are numbered through the whole job, over all batches and ranks."""

from itertools import product

import pytest

from store.attempts.facts import Claim
from store.output import logs
from store.output.facts import LogFilter, NewLines
from tests.databases import quick_on_sqlite
from tests.store.fixture import StoreFixture
from torchyard.contract.states import EndReason

ODD = ["", "  indented", "", "naïve ☃ 🎉", "a\rb\x0b\x0c\x1c\u2028c", "tab\t", "\x1b[31mred\x1b[0m"]


def lines(*texts: str, rank: int | None = 0, stream: str = "stdout") -> NewLines:
    return NewLines(rank, stream, list(texts))


@pytest.fixture
def logged(db: StoreFixture) -> Claim:
    """Ten lines in five chunks of three sources: 1-2 rank 0, 3-5 rank 1, 6 the launcher, 7-8 rank 0, 9-10 rank 1."""
    claim = db.running(db.submit(), db.worker())
    db.record(claim, seq=0, lines=[lines("1", "2"), lines("3", "4", "5", rank=1), lines("6", rank=None)])
    db.record(claim, seq=1, lines=[lines(), lines("7", "8", stream="stderr"), lines("9", "10", rank=1)])
    return claim


def after(db: StoreFixture, job_id: str, line: int, limit: int = 100, rank: int | None = None) -> list[int]:
    found = db.read(
        lambda session: logs.list_after(session, job_id, line=line, limit=limit, where=LogFilter(rank=rank)).items
    )
    assert all(item.text == str(item.line) for item in found)
    return [item.line for item in found]


def tail(db: StoreFixture, job_id: str, count: int, rank: int | None = None) -> list[int]:
    found = db.read(
        lambda session: logs.list_before(session, job_id, line=10**9, limit=count, where=LogFilter(rank=rank)).items
    )
    assert all(item.text == str(item.line) for item in found)
    return [item.line for item in found]


def test_lines_are_numbered_over_batches_and_ranks(db: StoreFixture, logged: Claim) -> None:
    found = db.read(lambda session: logs.list_after(session, logged.job_id, line=0, limit=100).items)
    assert [(item.line, item.text) for item in found] == [(number, str(number)) for number in range(1, 11)]
    assert [item.rank for item in found] == [0, 0, 1, 1, 1, None, 0, 0, 1, 1]
    assert [item.line for item in found if item.stream == "stderr"] == [7, 8]
    assert {item.attempt for item in found} == {1}
    assert db.job(logged.job_id).log_lines == 10


def test_pages_start_after_any_line(db: StoreFixture, logged: Claim) -> None:
    for line, limit in product(range(12), (1, 3, 100)):
        assert after(db, logged.job_id, line, limit) == list(range(line + 1, 11))[:limit], (line, limit)
        of_rank_1 = [number for number in (3, 4, 5, 9, 10) if number > line]
        assert after(db, logged.job_id, line, limit, rank=1) == of_rank_1[:limit], (line, limit)


def test_the_last_lines_are_returned(db: StoreFixture, logged: Claim) -> None:
    every, of_rank_0 = list(range(1, 11)), [1, 2, 7, 8]
    for count in range(12):
        assert tail(db, logged.job_id, count) == every[max(10 - count, 0) :]
        assert tail(db, logged.job_id, count, rank=0) == of_rank_0[max(4 - count, 0) :]


def test_a_job_or_rank_without_lines_has_an_empty_log(db: StoreFixture, logged: Claim) -> None:
    assert after(db, logged.job_id, 0, rank=7) == tail(db, logged.job_id, 5, rank=7) == []
    other = db.submit()
    assert after(db, other, 0) == tail(db, other, 5) == []


@quick_on_sqlite
def test_line_numbers_continue_in_the_next_attempt(db: StoreFixture, logged: Claim) -> None:
    db.end(logged, EndReason.WORKER_LOST)
    again = db.running(logged.job_id, db.worker())
    db.record(again, seq=0, lines=[lines("11")])
    found = db.read(lambda session: logs.list_after(session, logged.job_id, line=9, limit=5).items)
    assert [(item.line, item.attempt) for item in found] == [(10, 1), (11, 2)]


def test_empty_and_unusual_lines_are_stored(db: StoreFixture) -> None:
    claim = db.running(db.submit(), db.worker())
    db.record(claim, seq=0, lines=[lines(*ODD), lines(""), lines("", "")])
    found = db.read(lambda session: logs.list_after(session, claim.job_id, line=0, limit=100).items)
    assert [item.text for item in found] == [*ODD, "", "", ""]


def test_a_line_with_a_nul_is_stored(db: StoreFixture) -> None:
    claim = db.running(db.submit(), db.worker())
    db.record(claim, seq=0, lines=[lines("a\0b", "c")])
    found = db.read(lambda session: logs.list_after(session, claim.job_id, line=0, limit=100).items)
    assert [item.text for item in found] == ["a\ufffdb", "c"]


@quick_on_sqlite
def test_many_small_chunks_are_read_to_the_end(db: StoreFixture) -> None:
    claim = db.running(db.submit(), db.worker())
    for seq in range(5):
        db.record(claim, seq=seq, lines=[lines(str(20 * seq + number + 1)) for number in range(20)])
    assert tail(db, claim.job_id, 70) == list(range(31, 101))
    seen: list[int] = []
    while page := after(db, claim.job_id, seen[-1] if seen else 0, limit=7):
        seen += page
    assert seen == list(range(1, 101))
