"""Records convert and check their fields, whether Python or JSON gives the values."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
import math
from typing import Annotated, Any, Literal

from hypothesis import given
from hypothesis import strategies as st
import pytest

from torchyard.contract.states import EndReason
from torchyard.contract.wire.codec import Record, at_most, between, matching


@dataclass(frozen=True, kw_only=True)
class Part(Record):
    name: Annotated[str, matching(r"[a-z]+", "letters"), at_most(5)]


@dataclass(frozen=True, kw_only=True)
class Whole(Record):
    """One field of each type."""

    count: Annotated[int, between(0, 9)] = 0
    share: float = 0.0
    done: bool = False
    reason: EndReason = EndReason.COMPLETED
    mode: Literal["warm", "cold", 2] = "warm"
    took: timedelta = timedelta(0)
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    first: Part | None = None
    parts: list[Part] = field(default_factory=list[Part])
    values: dict[Annotated[str, matching(r"[a-z/]+", "letters and /")], float] = field(default_factory=dict[str, float])
    anything: Any = None


WHOLE = Whole(
    count=3,
    share=math.inf,
    done=True,
    reason=EndReason.HANG,
    mode=2,
    took=timedelta(minutes=15),
    at=datetime(2026, 11, 22, 12, tzinfo=UTC),
    first=Part(name="a"),
    parts=[Part(name="b"), Part(name="c")],
    values={"val/loss": 0.5, "train/loss": -math.inf},
    anything={"shape": [1, None, True, "naïve ☃"]},
)


def test_a_record_survives_the_trip_through_json() -> None:
    assert Whole.from_json(WHOLE.to_json()) == WHOLE
    assert Whole.from_json(WHOLE.to_json().encode()) == WHOLE
    assert Whole.from_dict(WHOLE.to_dict()) == WHOLE


def test_json_has_strings_for_what_it_cannot_hold() -> None:
    assert Whole(share=math.nan, took=timedelta(hours=24)).to_dict() | {"at": ""} == {
        "count": 0,
        "share": "NaN",
        "done": False,
        "reason": "completed",
        "mode": "warm",
        "took": "1d",
        "at": "",
        "first": None,
        "parts": [],
        "values": {},
        "anything": None,
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("count", "1"),
        ("count", True),
        ("count", 1.0),
        ("count", None),
        ("count", 10),
        ("count", -1),
        ("share", "0.5"),
        ("share", True),
        ("share", 10**400),
        ("share", None),
        ("done", 1),
        ("done", "true"),
        ("reason", "tired"),
        ("reason", None),
        ("mode", "hot"),
        ("mode", ["warm"]),
        ("took", "soon"),
        ("took", 5),
        ("at", "yesterday"),
        ("at", 5),
        ("first", {"name": "A"}),
        ("first", {"name": "abcdef"}),
        ("first", {"name": 5}),
        ("first", {"name": ["a"]}),
        ("first", {}),
        ("first", "a"),
        ("parts", {"name": "a"}),
        ("parts", "ab"),
        ("parts", [None]),
        ("values", []),
        ("values", {"A": 1.0}),
        ("values", {"a": "much"}),
    ],
)
def test_a_value_of_another_type_is_refused_by_the_fields_name(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name}: "):
        Whole(**{name: value})
    with pytest.raises(ValueError, match=f"^{name}: "):
        Whole.from_dict({name: value})


def test_a_missing_field_is_named() -> None:
    with pytest.raises(ValueError, match="name: is missing"):
        Part.from_json("{}")


def test_defaults_are_not_shared() -> None:
    one, other = Whole.from_json("{}"), Whole.from_json("{}")
    assert one == other == Whole()
    assert one.parts is not other.parts


@pytest.mark.parametrize(
    "raw", [b"", b"null", b"[]", b"{", b'{"name": "\xff"}', b"\xfe\xff\x00{", b"[" * 100_000, '{"name": "\\ud800"}']
)
def test_what_is_no_json_object_is_refused(raw: bytes | str) -> None:
    with pytest.raises(ValueError):
        Part.from_json(raw)


_ANY = st.characters(exclude_categories=["Cs"])
"""What UTF-8 can write, as by default: to find that by the codec takes two seconds of a processor."""


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(_ANY), st.lists, max_leaves=5))
def test_nothing_but_value_error_leaves_a_parser(value: Any) -> None:
    for name in ("count", "share", "first", "parts", "values", "mode", "took", "at"):
        try:
            Whole.from_dict({name: value})
        except ValueError:
            continue


def test_a_record_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        WHOLE.count = 4  # pyright: ignore[reportAttributeAccessIssue]


def test_of_several_types_the_first_one_says_what_is_wrong() -> None:
    with pytest.raises(ValueError, match=r"^first: name: "):
        Whole.from_dict({"first": {"name": "7"}})
