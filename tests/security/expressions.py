"""Finds every regular expression of the source, without importing it, and where it is searched for."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
import re
from typing import Any

ROOT = Path(__file__).parents[2]
PACKAGES = ("api", "controller", "scheduling", "store", "worker", "torchyard", "trainer", "migrations")
_FLAGS_AT = {"compile": 1, "split": 3, "sub": 4, "subn": 4} | dict.fromkeys(
    ("match", "fullmatch", "search", "findall", "finditer"), 2
)
"""The functions of `re`, and which argument of each has the flags."""
_AT_THE_START = frozenset({"match", "fullmatch"})
_CONVERTERS = {"matching": "torchyard.contract.wire.codec", "of_form": "torchyard.cli.run.checks"}
"""Functions that match a whole text, and where they stand."""
_MAY_HAVE_ONE = re.compile(r"\bre\.|\bmatching\b|\bof_form\b|\bpattern\b")
"""What a file with an expression has: most have none, and need not be read as Python."""
_IN_LITERAL = r"\\.|\[(?:[^\]\\\n]|\\.)*\]"
_LITERAL = re.compile(rf"(?<=[=(,:?!&|\s])/((?:[^/\\\n\[* >]|{_IN_LITERAL})(?:[^/\\\n\[]|{_IN_LITERAL})*)/([gimsuy]*)")
"""An expression of JavaScript, where a value is expected."""


def _allowing(pattern: str, _words: str) -> str:
    """Stands for `torchyard.contract.wire.wording.allowing`."""
    return pattern


_BUILTINS = {"re": re, "map": map, "str": str, "allowing": _allowing}


@dataclass(frozen=True)
class Expression:
    """`source` is None where it is made of what is known only at run time. `anywhere`: it may match at any place."""

    place: str
    source: str | bytes | None
    flags: int = 0
    anywhere: bool = True
    by_pydantic: bool = False


@cache
def expressions() -> tuple[Expression, ...]:
    """Returns every expression in the Python files of our packages."""
    return tuple(
        expression
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if "static" not in path.parts and _MAY_HAVE_ONE.search(path.read_text())
        for expression in _Source.of(path).expressions()
    )


def of_the_page() -> Iterator[Expression]:
    """Yields every literal expression in the scripts of the page."""
    for path in sorted((ROOT / "web" / "src").rglob("*")):
        if path.suffix not in {".ts", ".svelte"} or path.name.endswith((".test.ts", ".d.ts")):
            continue
        for found in _LITERAL.finditer(path.read_text()):
            flags = re.MULTILINE * ("m" in found[2]) | re.IGNORECASE * ("i" in found[2]) | re.DOTALL * ("s" in found[2])
            yield Expression(f"{path.relative_to(ROOT)}:{found[1]}", _in_python(found[1]), flags)


def _in_python(literal: str) -> str:
    """Writes a literal as Python's `re` reads it. Classes of characters by a property become all letters, or none."""
    source = re.sub(r"\\u\{([0-9a-f]+)\}", lambda found: f"\\U{found[1]:0>8}", literal)
    return re.sub(r"\\([pP])\{[^}]*\}", lambda found: r"\w" if found[1] == "p" else r"\W", source)


class _Source:
    """One file, and the constants of its top level."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tree = ast.parse(path.read_text())

    @cached_property
    def _parents(self) -> dict[ast.AST, ast.AST]:
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    @staticmethod
    @cache
    def of(path: Path) -> "_Source":
        return _Source(path)

    def expressions(self) -> Iterator[Expression]:
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.Call):
                continue
            name = _called(node)
            if name in _CONVERTERS and self.imports.get(name, ("", ""))[0] == _CONVERTERS[name]:
                yield self._expression(node, node.args[0], anywhere=False)
            elif (function := name.removeprefix("re.")) != name and function in _FLAGS_AT:
                flags = [
                    *node.args[_FLAGS_AT[function] :],
                    *(item.value for item in node.keywords if item.arg == "flags"),
                ]
                yield self._expression(node, node.args[0], flags, anywhere=self._is_anywhere(node, function))
            yield from (
                self._expression(node, keyword.value, anywhere=True, by_pydantic=True)
                for keyword in node.keywords
                if keyword.arg == "pattern" and name in {"Field", "Query", "StringConstraints"}
            )

    @cached_property
    def constants(self) -> dict[str, ast.expr]:
        found: dict[str, ast.expr] = {}
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                found[node.targets[0].id] = node.value
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                found[node.target.id] = node.value
        return found

    @cached_property
    def imports(self) -> dict[str, tuple[str, str]]:
        return {
            alias.asname or alias.name: (node.module, alias.name)
            for node in self.tree.body
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }

    def _expression(
        self,
        call: ast.Call,
        source: ast.expr,
        flags: Sequence[ast.expr] = (),
        *,
        anywhere: bool,
        by_pydantic: bool = False,
    ) -> Expression:
        place = f"{self.path.relative_to(ROOT)}:{_name_of(call, self._parents)}"
        try:
            value, number = _evaluate(source, self), sum(_evaluate(item, self) for item in flags)
        except LookupError:
            value, number = None, 0
        return Expression(place, value, number, anywhere=anywhere, by_pydantic=by_pydantic)

    def _is_anywhere(self, call: ast.Call, function: str) -> bool:
        """Returns whether a match may start at any place: unless all uses of the name match from the start."""
        if function != "compile":
            return function not in _AT_THE_START
        parent = self._parents[call]
        if isinstance(parent, ast.Attribute):
            return parent.attr not in _AT_THE_START
        if not isinstance(parent, ast.Assign) or not isinstance(parent.targets[0], ast.Name):
            return True
        name = parent.targets[0].id
        uses = [
            self._parents[node]
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
        ]
        return not all(isinstance(use, ast.Attribute) and use.attr in _AT_THE_START for use in uses)


class _Names(Mapping[str, Any]):
    """What the names of a file stand for. Raises KeyError for what is no constant."""

    def __init__(self, source: _Source) -> None:
        self._source = source

    def __getitem__(self, name: str) -> Any:
        if name in _BUILTINS:
            return _BUILTINS[name]
        if name in self._source.constants:
            return _evaluate(self._source.constants[name], self._source)
        module, original = self._source.imports[name]
        path = ROOT / Path(*module.split("."))
        file = path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py"
        if not file.is_file():
            raise KeyError(name)
        return _Names(_Source.of(file))[original]

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _evaluate(expression: ast.expr, source: _Source) -> Any:
    code = compile(ast.Expression(expression), str(source.path), "eval")
    try:
        return eval(code, {"__builtins__": {}}, _Names(source))
    except NameError as error:
        raise LookupError(str(error)) from None


def _called(call: ast.Call) -> str:
    """Returns the name of the function, or an empty one if it is no name and no attribute of a name."""
    function = call.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return f"{function.value.id}.{function.attr}"
    return function.id if isinstance(function, ast.Name) else ""


def _name_of(call: ast.Call, parents: Mapping[ast.AST, ast.AST]) -> str:
    """Returns the name that the result has, or that of the function around the call."""
    node: ast.AST | None = call
    while node is not None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return node.name
        if isinstance(node, ast.Assign) and isinstance(parents.get(node), ast.Module | ast.ClassDef):
            return ast.unparse(node.targets[0])
        node = parents.get(node)
    return f"line {call.lineno}"
