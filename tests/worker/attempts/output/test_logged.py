"""Metrics that are read from the lines of rank 0."""

from itertools import count

import pytest

from store.output.facts import Batch
from worker.attempts.output import logged
from worker.attempts.output.logged import LoggedMetrics

LOSS = r"loss[ =:]+(?P<value>\S+)"
Found = list[tuple[str, int, float]]


def read(patterns: list[str], *lines: str, offsets: dict[str, int] | None = None) -> tuple[Found, list[str]]:
    batch = Batch(offsets={})
    LoggedMetrics(patterns).read([line.encode() for line in lines], batch, {} if offsets is None else offsets)
    return [(point.key, point.step, point.value) for point in batch.logged], [
        str(event.data["text"]) for event in batch.events
    ]


@pytest.mark.parametrize(
    ("pattern", "lines", "found"),
    [
        (LOSS, ["epoch 1 loss=0.5, lr=1", "loss: 1e-3", "no", "loss nan"], [("loss", 1, 0.5), ("loss", 2, 1e-3)]),
        (r"step (?P<step>[\d,]+).*loss (?P<value>\S+)", ["step 1,500 loss 2"], [("loss", 1500, 2.0)]),
        (
            r"(?P<key>\w+)=(?P<value>[\d.]+)",
            ["a=1 b=2.5", "a=3"],
            [("a", 1, 1.0), ("b", 1, 2.5), ("a", 2, 3.0)],
        ),
        (LOSS, ["loss=high", "loss="], []),
        (r"step (?P<step>\S+) x (?P<value>\S+)", ["step -1 x 2", "step 99999999999999999 x 2"], []),
        (LOSS, ["x" * 4096 + "loss=1"], []),
        (LOSS, ["\x1b[32mINFO\x1b[0m \x1b[1mloss\x1b[0m=\x1b[36m0.5\x1b[0m"], [("loss", 1, 0.5)]),
    ],
)
def test_numbers_are_found_with_their_steps(pattern: str, lines: list[str], found: Found) -> None:
    points, said = read([pattern], *lines)
    assert points[: len(found)] == found and said == []
    assert len(points) == len(found) + ("loss nan" in lines)


def test_lines_are_counted_on_by_a_later_daemon() -> None:
    offsets: dict[str, int] = {}
    assert read([LOSS, "x=(?P<value>.)"], "loss=1", "loss=2", "x=1", offsets=offsets)[0][1] == ("loss", 2, 2.0)
    assert offsets == {"patterns/0": 2, "patterns/1": 1}
    assert read([LOSS], "loss=3", offsets=offsets)[0] == [("loss", 3, 3.0)]


def test_an_expression_that_re2_does_not_take_is_told_and_the_others_count() -> None:
    points, said = read([r"(?P<value>\d+)\Z", LOSS], "loss=1")
    assert points == [("loss", 1, 1.0)]
    assert len(said) == 1 and said[0].startswith("metrics.patterns.0 is not an RE2 expression")


def test_what_takes_longer_than_its_budget_is_left_out_and_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logged, "CPU_S", -1.0)
    batch, metrics = Batch(offsets={}), LoggedMetrics([LOSS])
    for _ in range(2):
        metrics.read([b"loss=1", b"loss=2"], batch, {})
    assert batch.logged == []
    assert [str(event.data["text"])[:52] for event in batch.events] == [
        "metrics.patterns are slow: 2 lines were not searched"
    ]


@pytest.mark.parametrize("pattern", [r"[[:alpha:](?P<value>x)]", r"\(?P<value>x"])
def test_an_expression_whose_group_re2_does_not_see_is_told(pattern: str) -> None:
    points, said = read([pattern, LOSS], "P<value>x] loss=1")
    assert points == [("loss", 1, 1.0)]
    assert said == ["metrics.patterns.0 is not an RE2 expression, and finds nothing: it has no group value"]


def test_a_line_is_searched_no_further_when_its_matches_have_used_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logged.time, "thread_time", count(step=logged.CPU_S / 2).__next__)
    points, said = read([LOSS], " ".join(f"loss={number}" for number in range(9)), "loss=9")
    assert points == [("loss", 1, 0.0), ("loss", 1, 1.0)]
    assert said == ["metrics.patterns are slow: 1 lines were not searched, and more may follow"]
