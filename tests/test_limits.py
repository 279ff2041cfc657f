"""The limits on modules, functions and classes (docs/decisions/0051)."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("torchyard", "trainer", "bench")
MOST_LINES = 300
MOST_STATEMENT_LINES = 40
"""From the first to the last statement of a function, without its signature and its docstring."""
MOST_ATTRIBUTES = 12
RECORDS = {
    "torchyard/contract/records.py": {"LaunchPlan"},
    "torchyard/contract/views/jobs.py": {"JobSummary"},
    "trainer/card.py": {"Card"},
    "bench/turns.py": {"Course"},
}
"""Records whose fields are those of a JSON object, one by one."""


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_function_or_class_is_longer_than_the_limits(package: str) -> None:
    found: list[str] = []
    for path in sorted((ROOT / package).rglob("*.py")):
        source, name = path.read_text(encoding="utf-8"), str(path.relative_to(ROOT))
        found += [f"{name} has {lines} lines" for lines in [source.count("\n")] if lines > MOST_LINES]
        found += [f"{name}: {what}" for what in _too_long(ast.parse(source), RECORDS.get(name, set()))]
    assert found == []


def test_every_exempted_record_is_there() -> None:
    for name, classes in RECORDS.items():
        found = {node.name for node in ast.walk(ast.parse((ROOT / name).read_text())) if isinstance(node, ast.ClassDef)}
        assert classes <= found


def _too_long(tree: ast.AST, records: set[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = _statement_lines(node)
            if lines > MOST_STATEMENT_LINES:
                yield f"{node.name} has {lines} lines of statements"
        elif isinstance(node, ast.ClassDef) and node.name not in records:
            attributes = _attributes(node)
            if len(attributes) > MOST_ATTRIBUTES:
                yield f"{node.name} has {len(attributes)} attributes"


def _statement_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    has_docstring = ast.get_docstring(function) is not None
    body = function.body[1:] if has_docstring else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def _attributes(kind: ast.ClassDef) -> set[str]:
    declared = {
        item.target.id for item in kind.body if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }
    assigned = {
        node.attr
        for node in ast.walk(kind)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if isinstance(node.value, ast.Name) and node.value.id == "self"
    }
    return declared | assigned
