"""Finds the options that the source of a program declares: of argparse, click, typer, absl, tyro and others."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from torchyard.cli.declared.files import modules, texts, written
from torchyard.cli.declared.functions import of_functions
from torchyard.cli.declared.options import ANY_PARSER, MAIN_PARSER, Declared, Kind, Library, Option

_FLAGS = {"store_true", "store_false", "store_const", "append_const", "count"}
_WORDS = {"+", "*"}
_NUMBERS = {"int", "float"}
_EVALUATED = {"eval", "literal_eval", "ast.literal_eval"}
_READS_ALL: dict[str, Library] = {
    "hydra.main": "hydra",
    "OmegaConf.from_cli": "hydra",
    "fire.Fire": "fire",
    "Fire": "fire",
}
_ABSL = {"DEFINE_bool", "DEFINE_boolean"}


def declared(folder: Path, file: str | None) -> Declared:
    """Returns what a program of the folder declares; nothing of a program whose file is not there."""
    if file is None:
        return Declared()
    options: list[Option] = []
    commands: set[str] = set()
    library: Library | None = None
    for name, tree in modules(folder, file):
        found = _Parsers(tree)
        commands |= found.commands
        options += [*_of_calls(tree, name, found), *of_functions(tree, name)]
        if name == file:
            library = next((_READS_ALL[call] for call in _calls_of(tree) if call in _READS_ALL), None)
    return Declared(_with_negations(options), frozenset(commands), library, file)


class _Parsers:
    """Which variable of a module is the parser of which sub-command."""

    def __init__(self, tree: ast.Module) -> None:
        self.commands: set[str] = set()
        self._parsers: dict[str, str | None] = {}
        parents: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and len(node.targets) == 1:
                self._assign(written(node.targets[0]), node.value)
            if isinstance(node, ast.Call):
                if _called(node) == "add_parser" and (named := texts(node)):
                    self.commands.add(named[0])
                given = _keywords(node).get("parents")
                parents |= {written(each) for each in given.elts} if isinstance(given, ast.List) else set()
        for name in parents:
            self._parsers[name] = ANY_PARSER

    def of(self, call: ast.Call) -> str | None:
        """Returns the parser to which a call of `add_argument` adds."""
        receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
        return ANY_PARSER if receiver is None else self._parsers.get(written(receiver), ANY_PARSER)

    def _assign(self, variable: str, call: ast.Call) -> None:
        called = _called(call)
        if called == "add_parser" and (named := texts(call)):
            found: str | None = named[0]
        elif called == "ArgumentParser":
            found = MAIN_PARSER
        elif called in {"add_argument_group", "add_mutually_exclusive_group"}:
            found = self.of(call)
        else:
            return
        # One name for several parsers, as in a loop, says nothing.
        self._parsers[variable] = found if self._parsers.get(variable, found) == found else ANY_PARSER


def _of_calls(tree: ast.Module, file: str, parsers: _Parsers) -> Iterator[Option]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called, where = _called(node), f"{file}, line {node.lineno}"
        if called == "add_argument":
            names = tuple(text for text in texts(node) if text.startswith("-"))
            known = all(keyword.arg is not None for keyword in node.keywords)  # and not **options
            if names and known:
                yield _of_argparse(node, names, parsers.of(node), where)
        elif called in _ABSL and (named := texts(node)):
            yield Option(names=(f"--{named[0]}",), kind="equals", where=where)


def _of_argparse(call: ast.Call, names: tuple[str, ...], parser: str | None, where: str) -> Option:
    given = _keywords(call)
    action, words = _action(given), _nargs(given)
    found: Kind = "value"
    if action in _FLAGS:
        found, words = "flag", 0
    elif action == "BooleanOptionalAction":
        found, words = "no-flag", 0
    elif words != 1:
        found = "words"
    of_type = written(given["type"]) if "type" in given else ""
    return Option(
        names=names,
        kind=found,
        no_truths=None if found in {"flag", "no-flag"} else _no_truths(of_type, given),
        is_bool_type=found not in {"flag", "no-flag"} and of_type == "bool",
        words=words,
        parser=parser,
        where=where,
    )


def _action(given: Mapping[str, ast.expr]) -> str:
    action = given.get("action")
    if isinstance(action, ast.Constant):
        return str(action.value)
    return "" if action is None else written(action).rpartition(".")[2]


def _nargs(given: Mapping[str, ast.expr]) -> int | None:
    nargs = given.get("nargs")
    if not isinstance(nargs, ast.Constant):
        return 1
    if isinstance(nargs.value, int):
        return nargs.value
    return None if nargs.value in _WORDS else 1


def _no_truths(of_type: str, given: Mapping[str, ast.expr]) -> str | None:
    choices = given.get("choices")
    if isinstance(choices, ast.List | ast.Tuple) and all(isinstance(each, ast.Constant) for each in choices.elts):
        listed = [str(each.value) for each in choices.elts if isinstance(each, ast.Constant)]
        return None if {"true", "false"} <= {*listed} else f"takes {', '.join(listed)}: write these"
    if of_type in _NUMBERS:
        return f"has type={of_type}: write 1,0"
    return f"has type={of_type}: write True,False" if of_type in _EVALUATED else None


def _with_negations(options: list[Option]) -> list[Option]:
    """Returns the options, of which a flag beside another one `--no-x` is switched off by that."""
    flags = {name for option in options if option.kind == "flag" for name in option.names}
    return [
        replace(option, kind="no-flag")
        if option.kind == "flag" and any(f"--no-{name.removeprefix('--')}" in flags for name in option.names)
        else option
        for option in options
    ]


def _calls_of(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield written(node.func) if isinstance(node.func, ast.Attribute | ast.Name) else ""


def _called(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _keywords(call: ast.Call) -> dict[str, ast.expr]:
    return {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
