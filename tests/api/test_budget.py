"""How much processor time a piece of work takes, by clocks of the test."""

from collections.abc import Generator, Iterator

import pytest

from api.limits.budget import Budget


class Clocks:
    """What a thread has used, and what time it is: both advance by the work alone."""

    def __init__(self) -> None:
        self.used_ms = 0
        self.now_ms = 0

    def budget(self, ms: float, *, within_ms: int = 1000) -> Budget:
        return Budget(
            ms / 1000,
            within_s=within_ms / 1000,
            processor=lambda: self.used_ms / 1000,
            clock=lambda: self.now_ms / 1000,
        )

    def work(self, pieces: int, *, ms: int = 1, waits_ms: int = 0) -> Iterator[int]:
        for piece in range(pieces):
            self.used_ms += ms
            self.now_ms += ms + waits_ms
            yield piece


def drained(slices: Generator[None, None, bool]) -> tuple[int, bool]:
    """Returns how many slices ended a turn, and whether the work ended."""
    turns = 0
    while True:
        try:
            next(slices)
        except StopIteration as end:
            return turns, end.value
        turns += 1


@pytest.mark.parametrize(
    ("pieces", "ms", "turns", "used_ms", "ended"),
    [(0, 1, 0, 0, True), (3, 1, 0, 3, True), (12, 1, 2, 12, True), (1000, 1, 4, 20, False), (1000, 7, 3, 21, False)],
)
def test_work_goes_on_in_slices_until_it_ends_or_the_budget_does(
    pieces: int, ms: int, turns: int, used_ms: int, ended: bool
) -> None:
    clocks = Clocks()
    assert drained(clocks.budget(19.5).slices(clocks.work(pieces, ms=ms))) == (turns, ended)
    assert clocks.used_ms == used_ms


def test_what_one_piece_of_work_leaves_is_for_the_next() -> None:
    clocks = Clocks()
    budget = clocks.budget(39.5)
    with budget.counted():
        clocks.used_ms += 10
    assert drained(budget.slices(clocks.work(1000), leaving_s=0.0151)) == (3, False)
    assert drained(budget.slices(clocks.work(1000))) == (3, False)
    assert 39 < clocks.used_ms < 46
    assert drained(budget.slices(clocks.work(1000))) == (0, False), "nothing is left"


def test_work_that_waits_long_for_its_turns_ends_in_time() -> None:
    clocks = Clocks()
    assert drained(clocks.budget(500, within_ms=100).slices(clocks.work(1000, waits_ms=9))) == (2, False)
