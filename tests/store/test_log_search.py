"""A search of a log finds each matching line once, over any number of calls."""

from itertools import product

import pytest

from store.attempts.facts import Claim
from store.output import log_search
from store.output.facts import EVERY_LINE, LogFilter, NewLines
from store.output.log_search import FoundLines, LogSearch, Pattern
from tests.rows import each_row
from tests.store.fixture import StoreFixture
from torchyard.contract.errors import InvalidRequest

TEXTS = ["step 1", "CUDA OOM", "oom again", "", "Straße", "a\rOOM\r", "\x1b[31mOOM\x1b[0m", "step 8", "the end", "oom"]


@pytest.fixture
def logged(db: StoreFixture) -> Claim:
    """Ten lines in five chunks: 1-2 rank 0, 3-5 rank 1, 6 the launcher, 7-8 rank 0 (stderr), 9-10 rank 1."""
    claim = db.running(db.submit(), db.worker())
    parts = [(0, "stdout", 2), (1, "stdout", 3), (None, "stdout", 1), (0, "stderr", 2), (1, "stdout", 2)]
    texts = iter(TEXTS)
    lines = [NewLines(rank, stream, [next(texts) for _ in range(count)]) for rank, stream, count in parts]
    db.record(claim, seq=0, lines=lines)
    return claim


def find(
    db: StoreFixture,
    claim: Claim,
    pattern: Pattern,
    *,
    after: int = 0,
    before: int = len(TEXTS) + 1,
    limit: int = 100,
    where: LogFilter = EVERY_LINE,
) -> FoundLines:
    search = LogSearch(claim.job_id, pattern, after=after, before=before, limit=limit, where=where)
    for _ in search.parts(db.database):
        pass
    return search.result


def numbers(found: FoundLines) -> list[int]:
    return [match.line for match in found.lines]


FOUND = (
    (log_search.match_text("oom", case=False), [2, 3, 6, 7, 10]),
    (log_search.match_text("oom", case=True), [3, 10]),
    (log_search.match_text("STRASSE", case=False), [5]),
    (log_search.match_text("\n", case=False), []),
    (log_search.match_text(".", case=False), []),
    (log_search.match_expression("^(cuda )?oom", case=False), [2, 3, 10]),
    (log_search.match_expression("^oom$", case=True), [10]),
    (log_search.match_expression(r"\Aoom\z", case=True), [10]),
    (log_search.match_expression("(?-m)^oom$", case=True), [10]),
    (log_search.match_expression("^$", case=True), [4]),
    (log_search.match_expression(r"\s", case=True), [1, 2, 3, 6, 8, 9]),
    (log_search.match_expression(r"(?s)step.*end", case=True), []),
    (log_search.match_expression("stra.e", case=False), [5]),
    (log_search.match_expression("", case=False), [*range(1, 11)]),
    (log_search.match_expression("[^x]*", case=False), [*range(1, 11)]),
    (log_search.match_expression("1\\nCUDA", case=True), []),
    (log_search.match_expression(r"(?s)1.CUDA|\Bm\b", case=True), [3, 7, 10]),
)


def test_a_search_finds_the_matching_lines(db: StoreFixture, logged: Claim) -> None:
    for pattern, expected in FOUND:
        found = find(db, logged, pattern)
        assert numbers(found) == expected, pattern
        assert [match.text for match in found.lines] == [TEXTS[number - 1] for number in expected]
        assert (found.matches, found.first, found.last) == (len(expected), 1, 10)
        assert (found.complete, found.next) == (True, None)


@each_row(
    ("where", "expected"),
    [
        (LogFilter(rank=0), [2, 7]),
        (LogFilter(rank=0, stream="stderr"), [7]),
        (LogFilter(attempt=1), [2, 3, 6, 7, 10]),
        (LogFilter(attempt=2), []),
    ],
)
def test_a_search_looks_at_some_lines_only(
    db: StoreFixture, logged: Claim, where: LogFilter, expected: list[int]
) -> None:
    assert numbers(find(db, logged, log_search.match_text("oom", case=False), where=where)) == expected


def test_a_search_looks_at_a_range_of_lines_only(db: StoreFixture, logged: Claim) -> None:
    for after in range(11):
        for before in range(after + 1, 12):
            found = find(db, logged, log_search.match_text("oom", case=False), after=after, before=before)
            assert numbers(found) == [number for number in (2, 3, 6, 7, 10) if after < number < before]
            assert (found.first, found.last, found.complete) == (after + 1, max(before - 1, after), True)


def test_the_calls_of_a_search_find_each_line_once(
    db: StoreFixture, logged: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit, most_chunks in product((1, 2, 100), (1, 2, 5000)):
        monkeypatch.setattr(log_search, "MOST_CHUNKS", most_chunks)
        seen: list[int] = []
        place: int | None = 0
        while place is not None:
            found = find(db, logged, log_search.match_text("oom", case=False), after=place, limit=limit)
            assert len(found.lines) == min(found.matches, limit)
            assert found.complete == (found.last == 10)
            seen += numbers(found)
            place = found.next
        assert seen == [2, 3, 6, 7, 10], (limit, most_chunks)


def test_a_call_ends_behind_many_matches(db: StoreFixture, logged: Claim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_search, "MOST_MATCHES", 1)
    found = find(db, logged, log_search.match_expression("o", case=False))
    assert (numbers(found), found.last, found.complete, found.next) == ([2], 2, False, 2)


def test_a_call_looks_at_a_bounded_part_of_the_text(
    db: StoreFixture, logged: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_search, "MOST_TEXT", 20)
    found = find(db, logged, log_search.match_text("oom", case=False))
    assert (numbers(found), found.first, found.last, found.complete, found.next) == ([2, 3], 1, 5, False, 5)


@pytest.mark.parametrize("expression", ["(", r"\1", "(?=x)", "a{1000}{1000}", "[z-a]", "(?:x{500}){500}"])
def test_an_expression_that_cannot_be_searched_in_linear_time_is_refused(expression: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        log_search.match_expression(expression, case=True)
    assert raised.value.errors[0].field == "q"


@pytest.mark.parametrize("expression", ["(a+)+$", "(a|aa)+$", "(.*)*(.*)*(.*)*b", "(a?){100}a{100}", "a+b|a"])
def test_no_expression_takes_more_than_linear_time(expression: str) -> None:
    # A backtracking engine needs more than the age of the universe for most of these.
    pattern = log_search.match_expression(expression, case=True)
    line = "a" * 16_384 + "!"
    assert [*pattern.matching("\n".join([line] * 3))] in ([], [0, 1, 2])
    assert len(pattern.spans(line)) <= 50


def test_spans_are_counted_in_characters() -> None:
    assert log_search.match_expression("é+", case=False).spans("aéébÉ") == [(1, 3), (4, 5)]
    assert log_search.match_text("É", case=False).spans("aéébÉ") == [(1, 2), (2, 3), (4, 5)]
    assert log_search.match_expression("x*", case=False).spans("axb") == [(1, 2)]
    assert log_search.match_text("ss", case=False).spans("Straße, ß") == [(4, 5), (8, 9)]
