"""Records: frozen dataclasses that are one JSON object each, checked when they are made and when they are read.

They need the standard library alone: ranks write them in environments that have another pydantic, or none.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from datetime import datetime, timedelta
from functools import cache, lru_cache, partial, reduce
import json
import math
import re
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from torchyard.contract.wire.since311 import Self
from torchyard.contract.wire.units import format_duration, parse_duration

Convert = Callable[[Any], Any]
"""Takes a value as JSON or Python has it, and returns it as the field's type. Raises ValueError."""


_LEAST, _MOST = -(2**63), 2**63 - 1
_SHOWN = 100  # characters of a wrong text
_KEYS = 4096  # keys of an object, such as names of metrics, whose check is remembered


@dataclass(frozen=True, kw_only=True)
class Record:
    """The base of all records. Each subclass is a frozen dataclass too.

    A whole number has at most 64 bits, with its sign: no database takes more.

    A field's type may be int, float, str, bool, None, Any, timedelta, datetime, a Literal, a StrEnum, a record, a
    union, or a list or dict of them. In `Annotated[type, check, …]` each check is called with the value, returns it,
    and raises ValueError. NaN and ±Inf travel as the strings `NaN`, `Infinity`, `-Infinity`. A record cannot be made
    with a value of another type: that raises ValueError, which names the field.
    """

    def __post_init__(self) -> None:
        for name, (convert, _) in _fields(type(self)).items():
            object.__setattr__(self, name, _named(name, convert, getattr(self, name)))

    @classmethod
    def from_json(cls, raw: bytes | str) -> Self:
        """Parses one JSON object. Ignores keys that a newer program has added. Raises ValueError."""
        return cls.from_dict(parse_object(raw))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Takes the fields from `values`, as JSON or Python has them. Raises ValueError."""
        record = object.__new__(cls)
        fields = record.__dict__  # one conversion a field: a worker parses thousands of lines a second
        for name, (convert, default) in _fields(cls).items():
            if name in values:
                fields[name] = _named(name, convert, values[name])
            elif default is MISSING:
                raise ValueError(f"{name}: is missing")
            else:
                fields[name] = default()
        return record

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as JSON has them."""
        return {name: _plain(getattr(self, name)) for name in _fields(type(self))}

    def to_json(self) -> str:
        """Returns one line of JSON."""
        return _ENCODER.encode(self.to_dict())


def parse_object(raw: bytes | str) -> dict[str, Any]:
    """Parses one JSON object, whose text has no lone surrogate. Raises ValueError."""
    text = raw if isinstance(raw, str) else raw.decode()
    try:
        value = json.loads(text)
        if "\\u" in text or not text.isascii():
            json.dumps(value, ensure_ascii=False).encode()  # UnicodeEncodeError is a ValueError
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")
    return value


def json_number(value: float) -> float | str:
    """Returns `value`, or the string that stands for it if JSON has no such number."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def between(low: int, high: int) -> Convert:
    """Accepts numbers from `low` to `high`, both included."""

    def check(value: int) -> int:
        if not low <= value <= high:
            raise ValueError(f"must be between {low} and {high}")
        return value

    return check


def cut_at(count: int) -> Convert:
    """Keeps the first `count` characters of a text."""
    return lambda value: value[:count]


def matching(pattern: str, words: str) -> Convert:
    """Accepts text that matches the whole pattern. `words` say what such a text is, for who wrote another."""
    compiled = re.compile(pattern)

    def check(value: str) -> str:
        if compiled.fullmatch(value) is None:
            raise ValueError(f"{value[:_SHOWN]!r} must be {words}")
        return value

    return check


def at_most(count: int) -> Convert:
    """Accepts texts, lists and dicts of at most `count` characters or items."""

    def check(value: Any) -> Any:
        if len(value) > count:
            raise ValueError(f"must have at most {count}, not {len(value)}")
        return value

    return check


@cache
def _fields(kind: type[Record]) -> dict[str, tuple[Convert, Any]]:
    """Returns each field's converter, and a function that makes its default, or MISSING."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: (_converter(hints[field.name]), _default(field)) for field in fields(kind)}


def _default(field: Field[Any]) -> Any:
    if field.default is MISSING:
        return field.default_factory  # MISSING too, if it has none
    return partial(_any, field.default)


def _named(name: str, convert: Convert, value: Any) -> Any:
    try:
        return convert(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _converter(hint: Any) -> Convert:
    if get_origin(hint) is Annotated:
        return reduce(_then, hint.__metadata__, _converter(get_args(hint)[0]))
    if get_origin(hint) in _GENERIC:
        return _GENERIC[get_origin(hint)](*map(_converter, get_args(hint)))
    if get_origin(hint) is Literal:
        return partial(_one_of, {str(item): item for item in get_args(hint)})
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    return partial(_record, hint) if issubclass(hint, Record) else hint  # a StrEnum takes its value


def _then(convert: Convert, check: Convert) -> Convert:
    return lambda value: check(convert(value))


def _union(*choices: Convert) -> Convert:
    def first_that_fits(value: Any) -> Any:
        errors: list[ValueError] = []
        for choice in choices:
            try:
                return choice(value)
            except ValueError as error:
                errors.append(error)
        raise errors[0]

    return first_that_fits


def _one_of(allowed: Mapping[str, Any], value: Any) -> Any:
    if str(value) not in allowed or isinstance(value, bool):
        raise ValueError(f"must be one of {', '.join(allowed)}")
    return allowed[str(value)]


def _list(item: Convert) -> Convert:
    def convert(value: Any) -> list[Any]:
        if not isinstance(value, (list, tuple)):
            raise ValueError("must be a list")
        return [item(part) for part in value]

    return convert


def _dict(key: Convert, item: Convert) -> Convert:
    key = lru_cache(_KEYS)(key)

    def convert(value: Any) -> dict[Any, Any]:
        if not isinstance(value, Mapping):
            raise ValueError("must be an object")
        return {key(name): item(part) for name, part in value.items()}

    return convert


def _record(kind: type[Record], value: Any) -> Record:
    if isinstance(value, kind):
        return value
    if not isinstance(value, Mapping):
        raise ValueError("must be an object")
    return kind.from_dict(value)


def _int(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError("must be a whole number")
    if not _LEAST <= value <= _MOST:
        raise ValueError("must fit into 64 bits")
    return value


def _float(value: Any) -> float:
    if type(value) is float:
        return value
    if isinstance(value, str) and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError("must be a number")
    try:
        return float(value)
    except OverflowError:
        raise ValueError("is too large") from None


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _str(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be text")
    return value


def _none(value: Any) -> None:
    if value is not None:
        raise ValueError("must be null")


def _any(value: Any) -> Any:
    return value


def _datetime(value: Any) -> datetime:
    return value if isinstance(value, datetime) else datetime.fromisoformat(_str(value))


_GENERIC: dict[Any, Callable[..., Convert]] = {Union: _union, UnionType: _union, list: _list, dict: _dict}
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_SIMPLE: dict[Any, Convert] = {
    int: _int,
    float: _float,
    bool: _bool,
    str: _str,
    NoneType: _none,
    Any: _any,
    timedelta: parse_duration,
    datetime: _datetime,
}


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return json_number(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, timedelta | datetime):
        return format_duration(value) if isinstance(value, timedelta) else value.isoformat()
    return value
