"""What `--sweep KEY=VALUES` says: a key, and the values that it takes."""

import json
import math
import re
from typing import Any

import typer

_NUMBER = r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,3})?"
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_FRACTION = re.compile(_NUMBER)
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})((?::[a-z]+(?:={_NUMBER})?)*)")
_WORDS = {"true": True, "false": False, "null": None}
_HOW = "write KEY=VALUE,VALUE,…, KEY=1..5, or for numbers between two others KEY=1e-5..1e-1:log"


def varied(text: str) -> tuple[str, Any]:
    """Returns the key and the values of `lr=1e-4,1e-3`, `seed=1..5` or `lr=1e-5..1e-1:log`, as a sweep's spec has them.

    A list or an object in JSON is taken as it is. Raises BadParameter.
    """
    key, mark, values = text.partition("=")
    if not (key and mark and values):
        raise typer.BadParameter(f"{text!r} is not complete: {_HOW}")
    if values.startswith(("[", "{")):
        return key, _json(values, text)
    if (match := _RANGE.fullmatch(values)) is not None:
        return key, _range(match, text)
    found = [_scalar(part) for part in values.split(",")]
    if "" in found:
        raise typer.BadParameter(f"{text!r} has an empty value: {_HOW}, or the values as a list in JSON")
    return key, found


def point_of(text: str) -> dict[str, Any]:
    """Returns the value of each key of `lr=0.1,seed=3`, or of an object in JSON. Raises BadParameter."""
    if text.startswith("{"):
        return _json(text, text)
    found = [part.partition("=") for part in text.split(",")]
    if not all(key and mark for key, mark, _ in found):
        raise typer.BadParameter(f"{text!r} is no point: write KEY=VALUE,KEY=VALUE, or an object in JSON")
    return {key: _scalar(value) for key, _, value in found}


def _json(values: str, text: str) -> Any:
    try:
        return json.loads(values)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"the values of {text!r} are not JSON: {error}") from None


def _range(match: re.Match[str], text: str) -> Any:
    """Returns `1..5` as it is, and other ranges as an object with what follows them: `:log`, `:step=0.1`."""
    low, high = _scalar(match[1]), _scalar(match[2])
    integer = isinstance(low, int) and isinstance(high, int)
    if integer and not match[3]:
        return match[0]
    found: dict[str, Any] = {"min": low, "max": high, **({"integer": True} if integer else {})}
    for word in match[3].split(":")[1:]:
        name, mark, number = word.partition("=")
        if word == "log":
            found["log"] = True
        elif name == "step" and mark:
            found["step"] = _scalar(number)
        else:
            raise typer.BadParameter(f"{text!r} ends with :{word}: a range may have :log or :step=NUMBER")
    return found


def _scalar(text: str) -> Any:
    """Returns the number, the truth or the null that a text is; any other text as it is."""
    if _WHOLE.fullmatch(text):
        return int(text)
    if _FRACTION.fullmatch(text) and re.search(r"[.eE]", text) and math.isfinite(float(text)):
        return float(text)
    return _WORDS.get(text, text)
