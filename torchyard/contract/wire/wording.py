"""Says in our words what pydantic finds wrong: what a value must be, and which keys there are."""

from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
import re
from typing import Any

_LONGEST = 100
"""Characters of an unknown name that are compared with the known ones, at most."""
_MOST_KEYS = 40
_OF_PATTERNS: dict[str, str] = {}
_QUOTED = re.compile("'([^']*)'")


def allowing(pattern: str, words: str) -> str:
    """Returns the pattern, and notes what a text must be that matches it: `letters and digits`."""
    _OF_PATTERNS[pattern] = words
    return pattern


def unknown_key(name: str, known: Collection[str]) -> str:
    """Says that a key is not there, which one may be meant, and which there are."""
    return (
        f"unknown key `{name[:_LONGEST]}`; {suggestion(name, known)}"
        if known
        else "unknown key: no keys are allowed here"
    )


def suggestion(name: str, known: Collection[str]) -> str:
    """Returns `did you mean epochs? Known: epochs, seed`, of names that are ours."""
    listed = ", ".join([*known][:_MOST_KEYS])
    near = nearest(name, known)
    return f"did you mean `{near}`? Known: {listed}" if near else f"known: {listed}"


def nearest(name: str, known: Collection[str]) -> str:
    """Returns the known name that `name` is like; empty if it is like none."""
    return next(iter(get_close_matches(name[:_LONGEST], known, n=1)), "")


def words(finding: Mapping[str, Any]) -> str:
    """Says what one of pydantic's findings means, with its context: `must be at least 1`."""
    say = _WORDS.get(finding["type"])
    return "has a value that is not allowed here" if say is None else say(finding.get("ctx") or {})


def _plain(text: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda _: text


def _bound(text: str) -> Callable[[Mapping[str, Any]], str]:
    """Formats the one number of a bound, whatever pydantic calls it."""
    return lambda context: text.format(next(iter(context.values())))


def _length(context: Mapping[str, Any]) -> str:
    low, high = context.get("min_length"), context.get("max_length")
    bound = f"at least {low}" if low is not None else f"at most {high}"
    return f"must have {bound} item{'' if (high if low is None else low) == 1 else 's'}"


def _characters(least: str) -> Callable[[Mapping[str, Any]], str]:
    def say(context: Mapping[str, Any]) -> str:
        number = context["min_length" if least == "least" else "max_length"]
        return f"must have at {least} {number} character{'' if number == 1 else 's'}"

    return say


def _pattern(context: Mapping[str, Any]) -> str:
    found = _OF_PATTERNS.get(context["pattern"])
    return "has characters that are not allowed here" if found is None else f"must be {found}"


def _one_of(context: Mapping[str, Any]) -> str:
    return f"must be {listed(_QUOTED.findall(context['expected']) or [context['expected']])}"


def listed(values: Collection[str]) -> str:
    """Formats `min or max`, `one of a, b, c`."""
    return " or ".join(values) if len(values) < 3 else f"one of {', '.join(values)}"


def _raised(context: Mapping[str, Any]) -> str:
    return str(context["error"])


_WHOLE, _NUMBER, _TRUTH = _plain("must be a whole number"), _plain("must be a number"), _plain("must be true or false")
_TEXT, _OBJECT = _plain("must be a text"), _plain("must be an object: keys with values")
_TIME = _plain("must be a time with its zone: 2026-01-31T12:00:00Z")
_DURATION = _plain("must be a duration: 90s, 15m, 24h or 7d")
_WORDS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "missing": _plain("is missing"),
    "extra_forbidden": _plain("unknown key"),
    "value_error": _raised,
    "assertion_error": _raised,
    "json_invalid": _plain("is not JSON"),
    "json_type": _plain("must be JSON"),
    **dict.fromkeys(("int_type", "int_parsing", "int_parsing_size", "int_from_float"), _WHOLE),
    **dict.fromkeys(("float_type", "float_parsing"), _NUMBER),
    "finite_number": _plain("must be a finite number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), _TRUTH),
    **dict.fromkeys(("string_type", "string_sub_type"), _TEXT),
    "string_unicode": _plain("must be a text without lone surrogates"),
    "string_too_short": _characters("least"),
    "string_too_long": _characters("most"),
    "string_pattern_mismatch": _pattern,
    "literal_error": _one_of,
    "enum": _one_of,
    "greater_than": _bound("must be above {}"),
    "greater_than_equal": _bound("must be at least {}"),
    "less_than": _bound("must be below {}"),
    "less_than_equal": _bound("must be at most {}"),
    "multiple_of": _bound("must be a multiple of {}"),
    "too_short": _length,
    "too_long": _length,
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "iterable_type"), _plain("must be a list")),
    **dict.fromkeys(
        ("dict_type", "mapping_type", "model_type", "model_attributes_type", "dataclass_type"),
        _OBJECT,
    ),
    **dict.fromkeys(
        ("datetime_type", "datetime_parsing", "datetime_from_date_parsing", "datetime_object_invalid"), _TIME
    ),
    **dict.fromkeys(("timezone_aware", "timezone_offset"), _TIME),
    **dict.fromkeys(("time_delta_type", "time_delta_parsing"), _DURATION),
    "none_required": _plain("must be null"),
    **dict.fromkeys(("path_type", "bytes_type"), _TEXT),
}
"""By the type of pydantic's finding."""
