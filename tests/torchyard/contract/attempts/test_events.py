"""The lines that a training process writes, well-formed and not."""

import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import pytest

from torchyard.contract.attempts.events import (
    CARD_BYTES,
    Card,
    CheckpointSaved,
    Line,
    Message,
    Metric,
    Progress,
    Remeasured,
    parse_line,
)

_KEYS = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters=[*map(chr, range(32)), "\x7f"]),
    min_size=1,
    max_size=200,
)
_TIMES = st.integers(0, 253_402_300_799_999_999)


def line(**fields: Any) -> str:
    return json.dumps({"time": 1} | fields)


@given(
    time=_TIMES,
    step=st.integers(0, 2**63 - 1),
    values=st.dictionaries(_KEYS, st.floats(), max_size=5),
)
def test_a_metric_survives_the_trip(time: int, step: int, values: dict[str, float]) -> None:
    written = Metric(time=time, step=step, values=values).to_json()
    json.loads(written, parse_constant=_refuse)
    read = parse_line(written)
    assert isinstance(read, Metric)
    assert (read.time, read.step, list(read.values)) == (time, step, list(values))
    assert all(_same(one, other) for one, other in zip(read.values.values(), values.values(), strict=True))


@pytest.mark.parametrize(
    ("written", "value"),
    [('"NaN"', math.nan), ('"Infinity"', math.inf), ('"-Infinity"', -math.inf), ("NaN", math.nan), ("1", 1.0)],
)
def test_numbers_that_json_has_none_for(written: str, value: float) -> None:
    raw = f'{{"type": "metric", "time": 1, "step": 2, "values": {{"train/loss": {written}}}}}'
    parsed = parse_line(raw)
    assert isinstance(parsed, Metric)
    assert _same(parsed.values["train/loss"], value)


@pytest.mark.parametrize(
    "record",
    [
        Progress(time=1, step=0),
        Progress(time=1, step=5, total_steps=10, epoch=1, epochs=2),
        CheckpointSaved(time=1, name="epoch-0003"),
        Remeasured(time=1, name="epoch-0003", metrics={"val/loss": 0.5}),
        Remeasured(time=1, name="epoch-0003", attempt=0, metrics={"val/loss": math.inf}),
        Message(time=1, level="warning", text="naïve\n☃"),
        Message(time=1, text=""),
        Card(time=1, values={"parameters": 7, "shape": [3, None, True, 0.5], "versions": {"torch": "☃"}}),
    ],
)
def test_other_lines_survive_the_trip(record: Line) -> None:
    assert parse_line(record.to_json()) == record


def test_a_card_has_strings_for_numbers_that_json_has_none_for() -> None:
    values: dict[str, Any] = {"a": math.nan, "b": [math.inf, {"c": -math.inf}]}
    expected = {"a": "NaN", "b": ["Infinity", {"c": "-Infinity"}]}
    for card in (Card(time=1, values=values), parse_line(line(type="card", values=values))):
        assert isinstance(card, Card)
        assert card.values == expected


def test_a_newer_writers_keys_are_ignored() -> None:
    assert parse_line(line(type="message", text="a", colour="red")) == Message(time=1, text="a")


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "{",
        "null",
        "[]",
        "7",
        "{}",
        line(),
        line(type="telemetry"),
        line(type="metric", step=1),
        line(type="metric", step=-1, values={}),
        line(type="metric", step=2**63, values={}),
        line(type="metric", step=1.5, values={}),
        line(type="metric", step=1, values={"": 1.0}),
        line(type="metric", step=1, values={"a" * 201: 1.0}),
        line(type="metric", step=1, values={"a\0": 1.0}),
        line(type="metric", step=1, values={"a\nb": 1.0}),
        line(type="metric", step=1, values={"a": None}),
        line(type="metric", step=1, values={"a": "much"}),
        line(type="metric", step=1, values={"a": [1.0]}),
        line(type="metric", step=1, values={f"k{number}": 1.0 for number in range(1001)}),
        line(type="metric", step=1, values={}, time=None),
        line(type="metric", step=1, values={}, time=-1),
        line(type="metric", step=1, values={}, time=10**30),
        line(type="progress", step=1, epoch=2**31),
        line(type="progress", step=1, total_steps=-1),
        line(type="checkpoint", name=""),
        line(type="checkpoint", name="../../etc"),
        line(type="checkpoint", name="a/b"),
        line(type="checkpoint", name=".hidden"),
        line(type="checkpoint", name="a\n"),
        line(type="checkpoint", name="a" * 101),
        line(type="remeasured", name="a", attempt=-1, metrics={}),
        line(type="remeasured", name="../a", metrics={}),
        line(type="remeasured", name="a", metrics={"b": "c"}),
        line(type="remeasured", name="a"),
        line(type="message", text="a" * 10_001),
        line(type="message", text="a", level="panic"),
        line(type="message", text="\ud800"),
        line(type="packages"),
        line(type="packages", values={"a": 1}),
        line(type="packages", values={"a": ""}),
        line(type="packages", values={"a b": "1"}),
        line(type="packages", values={"a": "1\u202e"}),
        line(type="packages", values={"a" * 101: "1"}),
        line(type="packages", values={f"p{number}": "1" for number in range(2001)}),
        line(type="packages", values={f"{'p' * 60}{number}": "1" for number in range(1000)}),
        line(type="card"),
        line(type="card", values=[]),
        line(type="card", values={"a\nb": 1}),
        line(type="card", values={"a": {"b": ["\0"]}}),
        line(type="card", values={f"k{number}": 1 for number in range(201)}),
        line(type="card", values={"a": "b" * CARD_BYTES}),
        '{"time":1,"type":"card","values":{"a":' + "[" * 33 + "]" * 33 + "}}",
        '{"time":1,"type":"message","text":"cut',
        "[" * 10_000,
    ],
)
def test_a_malformed_line_is_refused(raw: str) -> None:
    with pytest.raises(ValueError):
        parse_line(raw)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(raw: bytes) -> None:
    with pytest.raises(ValueError):
        parse_line(raw)


def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")
