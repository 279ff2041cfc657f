"""The limits on modules and functions (docs/decisions/0052)."""

import ast
from collections.abc import Iterator
from pathlib import Path

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


@pytest.mark.parametrize("folder", MODULES)
def test_no_module_or_function_is_longer_than_the_limits(folder: str) -> None:
    paths = [str(path.relative_to(ROOT)) for path in sorted((ROOT / folder).rglob("*.py"))]
    found = [_too_long(path, MODULES[folder]) for path in paths if not path.startswith(LISTS_OF_TABLES)]
    assert [what for each in found for what in each] == []


def test_a_class_inside_a_function_counts_for_itself() -> None:
    function = ast.parse("def made():\n    x = 1\n    class A:\n        y = 1\n        z = 2\n    return A").body[0]
    assert isinstance(function, ast.FunctionDef)
    assert _statement_lines(function) == 2


def _too_long(path: str, most: int) -> Iterator[str]:
    source = (ROOT / path).read_text(encoding="utf-8")
    if (lines := source.count("\n")) > most:
        yield f"{path} has {lines} lines"
    if lines <= FUNCTION:
        return
    for node in _statements(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (lines := _statement_lines(node)) > FUNCTION:
            yield f"{path}: {node.name} has {lines} lines of statements"


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
