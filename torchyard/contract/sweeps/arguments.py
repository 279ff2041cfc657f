"""How a sweep writes the value of a key into the arguments of a script."""

from collections.abc import Sequence
import json
import re
from typing import Literal

from pydantic import JsonValue

Style = Literal["value", "equals", "flag", "no-flag", "words", "hydra", "placed"]
"""How an argument is written: `--x VALUE`, `--x=VALUE`, `--x` or nothing, `--x` or `--no-x`, `--x A B`, `x=VALUE`, or
in place of `{x}` in other arguments."""
ARGUMENT = "args."
"""Begins the key of an argument of a script."""

_TRUTHS = {"true", "false", "yes", "no", "on", "off", "1", "0"}
_NEGATIVE = re.compile(r"-\.?[0-9]")


def style_of(key: str, args: Sequence[JsonValue]) -> Style:
    """Returns the style of a key of which none is given: `placed` if `{x}` is among the arguments, else `value`."""
    return "placed" if is_placed(key, args) else "value"


def is_placed(key: str, args: Sequence[JsonValue]) -> bool:
    """Whether the arguments have `{x}`, which stands for the value of the key."""
    mark = f"{{{key.removeprefix(ARGUMENT)}}}"
    return any(isinstance(each, str) and mark in each for each in args)


def option_of(key: str) -> str:
    """Returns the option that a key names: `--lr` of `args.lr`, and `-lr` of `args.-lr`."""
    name = key.removeprefix(ARGUMENT)
    return name if name.startswith("-") else f"--{name}"


def described(key: str, style: Style) -> str:
    """Says how the values of a key are written."""
    name, option = key.removeprefix(ARGUMENT), option_of(key)
    return {
        "value": f"{option} VALUE",
        "equals": f"{option}=VALUE",
        "flag": f"{option} or nothing",
        "no-flag": f"{option} or {_negated(option)}",
        "words": f"{option} VALUE VALUE …",
        "hydra": f"{name}=VALUE",
        "placed": f"{{{name}}} in the arguments",
    }[style]


def with_argument(
    args: Sequence[JsonValue], key: str, value: JsonValue, *, style: Style | None, ends: bool
) -> list[JsonValue]:
    """Returns the arguments with a value of the key, in place of the one that is there.

    null leaves an option out. `ends`: options end at an argument `--`, as in a program's own arguments. None as style:
    that of sweeps that were stored before there were styles. Raises ValueError for a value that the style cannot write.
    """
    if style == "placed":
        return _placed(args, key.removeprefix(ARGUMENT), value)
    if style == "hydra":
        return _assigned(args, key.removeprefix(ARGUMENT), value)
    option = option_of(key)
    if style in {"flag", "no-flag"} and not (value is None or isinstance(value, bool)):
        raise ValueError(f"is a flag, {described(key, style)}, and {json.dumps(value)} is neither true nor false")
    end = args.index("--") if ends and "--" in args else len(args)
    names = {option, _negated(option)} if style == "no-flag" else {option}
    kept, place, equals = _without(args[:end], names, value, takes_value=style not in {"flag", "no-flag"})
    new = _written(option, value, "equals" if equals and style == "value" else style)
    place = len(kept) if place is None else place
    return [*kept[:place], *new, *kept[place:], *args[end:]]


def text_of(value: JsonValue) -> str:
    """Returns a value as an argument: texts as they are, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def _written(option: str, value: JsonValue, style: Style | None) -> list[JsonValue]:
    if value is None:
        return []
    if isinstance(value, bool) and style in {"flag", "no-flag", None}:
        return [option] if value else [_negated(option)] if style == "no-flag" else []
    if style == "words" and isinstance(value, list):
        return [option, *map(text_of, value)]
    text = text_of(value)
    # A program would take a value that begins with a dash for another option.
    return [f"{option}={text}"] if style == "equals" or text.startswith("-") else [option, text]


def _without(
    args: Sequence[JsonValue], names: set[str], value: JsonValue, *, takes_value: bool
) -> tuple[list[JsonValue], int | None, bool]:
    """Returns the arguments without an option, its place among them, and whether it stood there as `--x=VALUE`."""
    belongs = _is_value if takes_value and not isinstance(value, bool) else _is_truth
    kept: list[JsonValue] = []
    place: int | None = None
    equals = skip = False
    for index, each in enumerate(args):
        following = args[index + 1] if index + 1 < len(args) else None
        if skip:
            skip = False
        elif each in names:
            place = len(kept) if place is None else place
            skip = belongs(following)
        elif isinstance(each, str) and each.partition("=")[0] in names:
            place = len(kept) if place is None else place
            equals = True
        else:
            kept.append(each)
    return kept, place, equals


def _is_value(following: JsonValue) -> bool:
    """Whether the argument after an option is its value, and not the next option."""
    return following is not None and not (
        isinstance(following, str) and following.startswith("-") and following != "-" and not _NEGATIVE.match(following)
    )


def _is_truth(following: JsonValue) -> bool:
    """Whether the argument after an option is its value: after a flag that needs none, it may be another argument."""
    return isinstance(following, str) and following.lower() in _TRUTHS


def _assigned(args: Sequence[JsonValue], name: str, value: JsonValue) -> list[JsonValue]:
    """Returns the arguments with `name=VALUE`, and with the `+` of the one that is there."""
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    at = re.compile(rf"\+{{0,2}}{re.escape(name)}=")
    found = [(index, each) for index, each in enumerate(args) if isinstance(each, str) and at.match(each)]
    if not found:
        return [*args, f"{name}={text}"]
    (place, first), others = found[0], {index for index, _ in found[1:]}
    before = first.partition("=")[0]
    return [f"{before}={text}" if index == place else each for index, each in enumerate(args) if index not in others]


def _placed(args: Sequence[JsonValue], name: str, value: JsonValue) -> list[JsonValue]:
    mark = f"{{{name}}}"
    if value is None:
        raise ValueError(f"null has no text, and {mark} stands in an argument: write the text that it is to have")
    text = text_of(value)
    return [each.replace(mark, text) if isinstance(each, str) else each for each in args]


def _negated(option: str) -> str:
    return f"--no-{option.removeprefix('--')}"
