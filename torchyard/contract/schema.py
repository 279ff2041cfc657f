"""The base of everything a user may send: strict types, no unknown keys, no infinities, no control bytes."""

from dataclasses import dataclass
from datetime import timedelta
import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_DURATION = re.compile(r"([0-9]{1,9})([smhd])")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
LONGEST = timedelta(days=3650)
"""Of all durations that a user may ask for."""
LONGEST_URL = 4008
"""Characters of a `file:///…`. No part of a pattern: one that counts them takes 8 MiB, and 20 ms at each start."""


class Schema(BaseModel):
    """A strict record: `1` is no boolean, `"3"` is no number, an unknown key is an error that names it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, validate_default=True)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        found = handler(core)
        for name, shown in handler.resolve_ref_schema(found).get("properties", {}).items():
            default = cls.model_fields[name].default
            if isinstance(default, timedelta):  # pydantic writes the ISO form, which a duration's pattern refuses
                shown["default"] = format_duration(default)
        return found


def parse_duration(value: Any) -> timedelta:
    """`90s`, `15m`, `24h` or `7d` as a timedelta. Raises ValueError."""
    if isinstance(value, timedelta):
        return value
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("write a duration as a number and a unit: 90s, 15m, 24h or 7d")
    duration = timedelta(seconds=int(match[1]) * _UNITS[match[2]])
    if duration > LONGEST:
        raise ValueError(f"must be at most {format_duration(LONGEST)}")
    return duration


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


def _or_auto(value: Any) -> timedelta | Literal["auto"]:
    return "auto" if value == "auto" else parse_duration(value)


AutoDuration = Annotated[
    timedelta | Literal["auto"],
    BeforeValidator(_or_auto),
    PlainSerializer(lambda value: value if value == "auto" else format_duration(value), return_type=str),
    WithJsonSchema({"type": "string", "pattern": "^(auto|[0-9]{1,9}[smhd])$", "examples": ["auto", "15m"]}),
]
"""A duration, or `auto`."""


def unbuilt(default: object) -> AfterValidator:
    """Accepts only `default`: the key has its place in the interface, and the other values are not built yet."""

    def check(value: object) -> object:
        if value != default:
            shown = "null" if default is None else str(default).lower() if isinstance(default, bool) else default
            raise ValueError(f"not built yet: only {shown} is accepted")
        return value

    return _Only(check, default)


@dataclass(frozen=True)
class _Only(AfterValidator):
    """Says in the JSON schema, too, that there is one value."""

    value: object

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(core), "const": self.value}


def storable(text: str) -> str:
    """`text` with U+FFFD for each NUL and lone surrogate, which not every database stores."""
    return _UNSTORABLE.sub("\ufffd", text)


def unstorable(value: Any) -> tuple[str, str] | None:
    """The first place in `value` that no database stores, and what is wrong with it; None for a sound value."""
    return _unstorable(value, ())


Count = Annotated[int, Field(ge=1, le=2**31 - 1)]

MetricKey = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
"""The name of a metric: no control characters."""


def _unstorable(value: Any, path: tuple[str, ...]) -> tuple[str, str] | None:
    if len(path) > 32:
        return ".".join(path), "nested more than 32 levels deep"
    if isinstance(value, str):
        return (".".join(path), "text holds a NUL or a lone surrogate") if _UNSTORABLE.search(value) else None
    parts: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        for key, item in value.items():
            name = storable(str(key))[:200]
            parts += [(name, key), (name, item)]
    elif isinstance(value, list):
        parts = [(str(index), item) for index, item in enumerate(value)]
    return next((wrong for name, item in parts if (wrong := _unstorable(item, (*path, name)))), None)
