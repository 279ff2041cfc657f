"""The base of everything a user may send: strict types, no unknown keys, no infinities, no control bytes."""

from collections.abc import Callable
from datetime import timedelta
import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema

_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_DURATION = re.compile(r"([0-9]{1,9})([smhd])")


class Schema(BaseModel):
    """A strict record: `1` is no boolean, `"3"` is no number, an unknown key is an error that names it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, validate_default=True)


def parse_duration(value: Any) -> timedelta:
    """`90s`, `15m`, `24h` or `7d` as a timedelta. Raises ValueError."""
    if isinstance(value, timedelta):
        return value
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("write a duration as a number and a unit: 90s, 15m, 24h or 7d")
    return timedelta(seconds=int(match[1]) * _UNITS[match[2]])


def format_duration(value: timedelta) -> str:
    """The shortest spelling that `parse_duration` reads back."""
    seconds = int(value.total_seconds())
    unit = next((unit for unit, size in _UNITS.items() if seconds and seconds % size == 0), "s")
    return f"{seconds // _UNITS[unit]}{unit}"


Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string", "pattern": "^[0-9]{1,9}[smhd]$", "examples": ["90s", "15m", "24h", "7d"]}),
]


def unbuilt(default: object) -> AfterValidator:
    """Accepts only `default`: the key has its place in the interface, and the other values are not built yet."""

    def check(value: object) -> object:
        if value != default:
            shown = "null" if default is None else str(default).lower() if isinstance(default, bool) else default
            raise ValueError(f"not built yet: only {shown} is accepted")
        return value

    return AfterValidator(check)


def printable(value: Any) -> Any:
    """`value`, if no text in it holds a NUL or half a surrogate pair, which no database stores. Raises ValueError."""
    _each_text(value, _check_text)
    return value


Count = Annotated[int, Field(ge=1, le=2**31 - 1)]


def _each_text(value: Any, check: Callable[[str], None], depth: int = 0) -> None:
    if depth > 32:
        raise ValueError("nested more than 32 levels deep")
    if isinstance(value, str):
        check(value)
    elif isinstance(value, dict):
        for key, item in value.items():
            _each_text(key, check, depth + 1)
            _each_text(item, check, depth + 1)
    elif isinstance(value, list):
        for item in value:
            _each_text(item, check, depth + 1)


def _check_text(text: str) -> None:
    if "\x00" in text or any("\ud800" <= char <= "\udfff" for char in text):
        raise ValueError("text holds a NUL or a lone surrogate")
