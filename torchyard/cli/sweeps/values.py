"""What `--sweep KEY=VALUES` says: a key, and the values that it takes."""

from collections.abc import Callable
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


def varied(text: str, *, as_typed: bool = False) -> tuple[str, Any]:
    """Returns the key and the values of `lr=1e-4,1e-3`, `seed=1..5` or `lr=1e-5..1e-1:log`, as a sweep's spec has them.

    A list or an object in JSON is taken as it is. `as_typed`: a number that would be written otherwise, such as 1e3,
    stays the text that was typed, and so does a list. Raises BadParameter.
    """
    key, mark, values = text.partition("=")
    if not (key and mark and values):
        raise typer.BadParameter(f"{text!r} is not complete: {_HOW}")
    parts = _parts(values)
    if values.startswith("{") or (values.startswith("[") and len(parts) == 1):
        return key, _typed_list(values, text) if as_typed and values.startswith("[") else _json(values, text)
    if (match := _RANGE.fullmatch(values)) is not None:
        return key, _range(match, text)
    for part in parts:
        _check_part(part, text)
    return key, [_scalar(part, as_typed=as_typed) for part in parts]


def point_of(text: str, *, as_typed: Callable[[str], bool]) -> dict[str, Any]:
    """Returns the value of each key of `lr=0.1,seed=3`, or of an object in JSON. `as_typed`: as of `varied`, by keys.

    Raises BadParameter.
    """
    if text.startswith("{"):
        return _json(text, text)
    found = [part.partition("=") for part in _parts(text)]
    if not all(key and mark for key, mark, _ in found):
        raise typer.BadParameter(f"{text!r} is not a point: write KEY=VALUE,KEY=VALUE, or an object in JSON")
    return {key: _scalar(value, as_typed=as_typed(key)) for key, _, value in found}


def _check_part(part: str, text: str) -> None:
    """Raises BadParameter for a value that would not be what was meant."""
    key = text.partition("=")[0]
    if not part:
        raise typer.BadParameter(f"{text!r} has an empty value: {_HOW}, or the values as a list in JSON")
    if part[0] in "'\"":
        written = json.dumps([part.strip(part[0]), "…"], ensure_ascii=False)
        raise typer.BadParameter(f"{text!r} has a value in quotes: write the values as a list in JSON, {key}={written}")
    if _RANGE.fullmatch(part) is not None:
        raise typer.BadParameter(f"{text!r} has a range beside other values: write {key}={part}, or each value")


def _parts(values: str) -> list[str]:
    """Returns what commas divide, but for those within brackets or quotes."""
    found, part, depth, quote = [""], 0, 0, ""
    for place, letter in enumerate(values):
        if quote:
            quote = "" if letter == quote and values[place - 1] != "\\" else quote
        elif letter in "'\"" and (depth or not found[part].strip()):
            quote = letter
        elif letter in "[({":
            depth += 1
        elif letter in "])}":
            depth -= 1
        elif letter == "," and depth <= 0:
            found.append("")
            part += 1
            continue
        found[part] += letter
    return [each.strip() for each in found]


def _typed_list(values: str, text: str) -> list[Any]:
    """Returns the values of a list in JSON: lists and objects in it as the texts that were typed."""
    parsed = _json(values, text)
    typed = _parts(values.strip()[1:-1])
    return [
        part if part[:1] in {"[", "{"} else _scalar(part, as_typed=True) if _is_number(value) else value
        for value, part in zip(parsed, typed, strict=True)
    ]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _json(values: str, text: str) -> Any:
    try:
        return json.loads(values)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"the values of {text!r} are not JSON: {error}") from None


def _range(match: re.Match[str], text: str) -> Any:
    """Returns `1..5` as it is, and other ranges as an object with what follows them: `:log`, `:step=0.1`."""
    low, high = _scalar(match[1]), _scalar(match[2])
    step = re.search(r":step=([^:]*)", match[3])
    integer = isinstance(low, int) and isinstance(high, int) and (step is None or _WHOLE.fullmatch(step[1]) is not None)
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


def _scalar(text: str, *, as_typed: bool = False) -> Any:
    """Returns the number, the truth or the null that a text is; any other text as it is."""
    if _WHOLE.fullmatch(text) and not (as_typed and str(int(text)) != text):
        return int(text)
    if _FRACTION.fullmatch(text) and re.search(r"[.eE]", text) and math.isfinite(float(text)):
        number = float(text)
        return text if as_typed and json.dumps(number) != text else number
    return _WORDS.get(text, text)
