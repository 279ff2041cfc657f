"""The limits on modules and functions (docs/decisions/0052)."""

import ast
from collections.abc import Iterator
from pathlib import Path
import re

import pytest

ROOT = Path(__file__).parent.parent
FUNCTION = 60
MODULES = {
    **dict.fromkeys(("torchyard", "scheduling", "store", "api", "controller", "worker", "trainer"), 400),
    **dict.fromkeys(("migrations", "deploy", "bench"), 400),
    "tests": 800,
}
"""The most lines of a module, by folder."""
LISTS_OF_TABLES = "migrations/versions"
_STARTS = re.compile(r"^( *)(?:((?:async )?def )|class |@)", re.MULTILINE)


@pytest.mark.parametrize("folder", MODULES)
def test_no_module_is_longer_than_its_limit(folder: str) -> None:
    lengths = {path: source.count("\n") for path, source in _sources(folder)}
    assert {path: lines for path, lines in lengths.items() if lines > MODULES[folder]} == {}


@pytest.mark.parametrize("folder", [*list(MODULES)[:-1], pytest.param("tests", marks=pytest.mark.thorough)])
def test_no_function_is_longer_than_the_limit(folder: str) -> None:
    assert [what for path, source in _sources(folder) for what in _too_long(path, source)] == []


def test_a_class_inside_a_function_counts_for_itself() -> None:
    function = ast.parse("def made():\n    x = 1\n    class A:\n        y = 1\n        z = 2\n    return A").body[0]
    assert isinstance(function, ast.FunctionDef)
    assert _statement_lines(function) == 2


def _sources(folder: str) -> Iterator[tuple[str, str]]:
    """Yields the path and the text of each module."""
    for file in sorted((ROOT / folder).rglob("*.py")):
        if not (path := str(file.relative_to(ROOT))).startswith(LISTS_OF_TABLES):
            yield path, file.read_text(encoding="utf-8")


def _too_long(path: str, source: str) -> Iterator[str]:
    if not path.startswith("tests/") and not _may_be_too_long(source):  # tests have programs in their texts
        return
    for node in _statements(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (lines := _statement_lines(node)) > FUNCTION:
            yield f"{path}: {node.name} has {lines} lines of statements"


def _may_be_too_long(source: str) -> bool:
    """Says whether a function has so many lines until the next one that is no deeper: to parse takes ten times it."""
    opened: list[tuple[int, int]] = []
    line, place = 0, 0
    for start in _STARTS.finditer(source):
        line, place = line + source.count("\n", place, start.start()), start.start()
        while opened and opened[-1][0] >= len(start[1]):
            if line - opened.pop()[1] > FUNCTION:
                return True
        if start[2]:
            opened.append((len(start[1]), line))
    end = line + source.count("\n", place)
    return any(end - begin > FUNCTION for _, begin in opened)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Walks the statements below a node, without their expressions."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for each in getattr(node, name, ()):
            yield each
            yield from _statements(each)


def _statement_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Counts from the first statement to the last, without the docstring and classes inside."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    classes = [node for statement in body for node in ast.walk(statement) if isinstance(node, ast.ClassDef)]
    return _lines(body[0], body[-1]) - sum(_lines(node, node) for node in classes) if body else 0


def _lines(first: ast.stmt, last: ast.stmt) -> int:
    return (last.end_lineno or 0) - first.lineno + 1
