"""How a sweep writes its values into the arguments of a program: as the program's source declares its options."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
import json
from typing import Any, Literal

import typer

from torchyard.cli.declared.options import MAIN_PARSER, Declared, Option
from torchyard.contract.sweeps.arguments import ARGUMENT, Style, is_placed, option_of, text_of, with_argument

Chosen = Literal["value", "equals", "hydra"]
Truths = Literal["flag", "no-flag", "value"]
_TRUTHS: Mapping[str, bool] = {"true": True, "false": False}
_FALSE = {"false", "0", "no", "off"}


@dataclass
class Styled:
    """What varies of a program, and how it is written."""

    parameters: dict[str, Any]
    args: list[str]
    styles: dict[str, Style] = field(default_factory=dict)
    by: dict[str, str] = field(default_factory=dict)
    """Of a style that follows from the source: the place there."""


def styled(
    parameters: Mapping[str, Any],
    args: Sequence[str],
    *,
    declared: Declared,
    chosen: Chosen | None,
    truths: Mapping[str, Truths],
) -> Styled:
    """Returns the parameters with the names that the program declares, the style of each, and the arguments.

    `chosen`: the style of all that are no flags. `truths`: by keys, how `true` and `false` are written. In `args`, what
    a sweep replaces stands as `torchyard.contract.sweeps.arguments` finds it. Raises BadParameter.
    """
    found = Styled({}, [*args])
    for key, values in parameters.items():
        if not key.startswith(ARGUMENT):
            found.parameters[key] = values
            continue
        _add(found, key, values, declared=declared, chosen=chosen, truths=truths.get(key))
    for key in truths:
        if key not in parameters:
            raise typer.BadParameter(f"--sweep-bool {key.removeprefix(ARGUMENT)} names no argument that varies")
    return found


def _add(
    found: Styled, key: str, values: Any, *, declared: Declared, chosen: Chosen | None, truths: Truths | None
) -> None:
    name = key.removeprefix(ARGUMENT)
    if is_placed(key, found.args):
        if truths is not None:
            raise typer.BadParameter(f"--sweep-bool {name}: {{{name}}} in the arguments stands for its values")
        return _set(found, key, values, "placed")
    if chosen == "hydra" or (chosen is None and truths is None and declared.library == "hydra"):
        by = "" if chosen else f"{declared.file} uses Hydra"
        return _set(found, key, values, "hydra", by)
    options = declared.find(name, found.args)
    if options:
        key = _key_of(declared.spelled(options[0], name))
    if key in found.parameters:
        raise typer.BadParameter(f"{name} is given twice: write all of its values in one --sweep")
    if truths is not None:
        return _set(found, key, _truths(values, name) if truths != "value" else values, truths)
    option = _one_of(options, values, name)
    if option is None:
        _check_undeclared(declared, values, name)
        return _set(found, key, values, chosen or "value")
    _check(option, values, name)
    style: Style = option.kind if option.kind != "value" else chosen or "value"
    if style in {"flag", "no-flag"}:
        values = _truths(values, name, option)
    elif style == "words":
        values = _lists(values)
    found.args = _normal(found.args, option, key, commands=declared.commands, values=values, style=style)
    return _set(found, key, values, style, option.where)


def _set(found: Styled, key: str, values: Any, style: Style, by: str = "") -> None:
    found.parameters[key] = values
    found.styles[key] = style
    if by:
        found.by[key] = by


def _key_of(spelled: str) -> str:
    return f"{ARGUMENT}{spelled.removeprefix('--')}"


def _one_of(options: Sequence[Option], values: Any, name: str) -> Option | None:
    """Returns what declares the option; None if nothing does. Raises BadParameter if two declare it otherwise."""
    if len({option.kind for option in options}) > 1 and _has_truths(values):
        places = " and ".join(option.where for option in options)
        raise typer.BadParameter(f"{places} declare {name} differently: choose with --sweep-bool {name}=flag")
    return options[0] if options else None


def _check(option: Option, values: Any, name: str) -> None:
    """Raises BadParameter for values that the program would refuse, or take for others."""
    if option.is_bool_type:
        wrong = [value for value in _listed(values) if not value or text_of(value).lower() in _FALSE]
        if any(value != "" for value in wrong):
            raise typer.BadParameter(
                f"{option.where}: {name} has type=bool, for which each text but an empty one is true:"
                f' write {name}=\'["true", ""]\''
            )
    elif option.no_truths is not None and _has_truths(values):
        told = option.no_truths.replace("{NAME}", f"{{{name}}}")
        raise typer.BadParameter(f"{option.where}: {name} {told}")


def _check_undeclared(declared: Declared, values: Any, name: str) -> None:
    """Raises BadParameter where the library takes other words, and for the name that switches a flag off."""
    if declared.library == "fire" and _has_truths(values):
        raise typer.BadParameter(f"{declared.file} uses Fire, which takes True and False: write {name}=True,False")
    on = name.removeprefix("no-").removeprefix("no_")
    flag = next((option for option in declared.find(on, ()) if option.kind == "no-flag"), None)
    if on != name and flag is not None:
        raise typer.BadParameter(f"{flag.where}: {name} switches {on} off: write {on}=false,true")


def _has_truths(values: Any) -> bool:
    return any(isinstance(value, bool) for value in _listed(values))


def _listed(values: Any) -> list[Any]:
    return values if isinstance(values, list) else []


def _truths(values: Any, name: str, option: Option | None = None) -> list[Any]:
    """Returns the values of a flag: true, false, or null for nothing. Raises BadParameter."""
    found = [_TRUTHS.get(value.lower(), value) if isinstance(value, str) else value for value in _listed(values)]
    if not found or any(not (value is None or isinstance(value, bool)) for value in found):
        where = "" if option is None else f"{option.where}: "
        raise typer.BadParameter(f"{where}{name} is a flag without a value: write {name}=true,false")
    return found


def _lists(values: Any) -> Any:
    """Returns the values of an option that takes several words: lists in JSON as lists."""
    return [_list_of(value) for value in values] if isinstance(values, list) else values


def _list_of(value: Any) -> Any:
    if not (isinstance(value, str) and value.startswith("[")):
        return value
    try:
        found = json.loads(value, parse_float=str)
    except ValueError:
        return value
    return found if isinstance(found, list) else value


def _normal(
    args: list[str], option: Option, key: str, *, commands: frozenset[str], values: Any, style: Style
) -> list[str]:
    """Returns the arguments with the option written by one name and with one value, so that a sweep can replace it."""
    spelled = option_of(key)
    found: list[str] = []
    index = 0
    while index < len(args):
        name, mark, value = args[index].partition("=")
        index += 1
        if name not in option.names:
            found.append(args[index - 1])
            continue
        words = [] if mark else _words_of(option, args[index:])
        found += [f"{spelled}{mark}{value}", *words[:1]]
        index += len(words)
    stands = any(arg.partition("=")[0] in {spelled, f"--no-{spelled.removeprefix('--')}"} for arg in found)
    command = next((index for index, arg in enumerate(found) if arg in commands), None)
    if stands or option.parser != MAIN_PARSER or command is None:
        return found
    # It belongs before the sub-command: a value that each trial replaces holds its place there.
    shown = [value for value in _listed(values) or [0] if value is not None and (value or style != "flag")]
    new = with_argument([], key, shown[0], style=style, ends=True) if shown else []
    return [*found[:command], *map(str, new), *found[command:]]


def _words_of(option: Option, following: Sequence[str]) -> Sequence[str]:
    """Returns those arguments after an option that are its value."""
    if option.words is not None:
        return following[: option.words]
    return [*takewhile(lambda arg: not (arg.startswith("-") and len(arg) > 1), following)]
