"""The limits on modules, functions and classes (docs/decisions/0052)."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = (
    "torchyard",
    "scheduling",
    "store",
    "api",
    "controller",
    "worker",
    "trainer",
    "migrations",
    "deploy",
    "bench",
)
LISTS_OF_TABLES = "migrations/versions"
MOST_ATTRIBUTES = 12
RECORDS = {
    "store/db/tables": None,
    "store/facts": None,
    "torchyard/contract/views": None,
    "worker/settings.py": {"Settings"},
    "worker/engines/base.py": {"AttemptPlan"},
    "worker/engines/slurm/records.py": {"ClusterPlan"},
    "torchyard/contract/recipes/segmentation.py": {"SegmentationDataConfig"},
    "torchyard/contract/records.py": {"LaunchPlan", "Sandbox"},
    "torchyard/contract/spec.py": {"_Common"},
    "torchyard/contract/sweeps.py": {"SweepSpec"},
    "scheduling/snapshot.py": {"Running", "Snapshot"},
    "trainer/card.py": {"Card"},
    "bench/turns.py": {"TrainingSettings"},
}
"""Modules and folders of records, whose fields are given one by one; which of their classes, None for all."""


@dataclass(frozen=True)
class Limits:
    """The most lines of a module and of a function, from its first to its last statement."""

    module: int = 300
    function: int = 40


IN_TESTS = Limits(module=800, function=60)


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_function_or_class_is_longer_than_the_limits(package: str) -> None:
    found: list[str] = []
    for name, source in _modules(package):
        if not name.startswith(LISTS_OF_TABLES):
            found += _too_long(name, source, Limits())
            found += _too_many_attributes(name, source)
    assert found == []


def test_tests_have_limits_of_their_own() -> None:
    assert [what for name, source in _modules("tests") for what in _too_long(name, source, IN_TESTS)] == []


@pytest.mark.parametrize("place", RECORDS)
def test_every_exemption_is_needed(place: str) -> None:
    path, classes = ROOT / place, RECORDS[place]
    trees = [ast.parse(module.read_text()) for module in ([path] if path.is_file() else path.rglob("*.py"))]
    large = {kind.name for tree in trees for kind in _classes(tree) if len(_attributes(kind)) > MOST_ATTRIBUTES}
    assert large and (classes is None or large == classes)


def test_a_class_inside_a_function_counts_for_itself() -> None:
    function = ast.parse("def made():\n    x = 1\n    class A:\n        y = 1\n        z = 2\n    return A").body[0]
    assert isinstance(function, ast.FunctionDef)
    assert _statement_lines(function) == 2


def _modules(package: str) -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / package).rglob("*.py")):
        yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def _too_long(name: str, source: str, limits: Limits) -> Iterator[str]:
    if (lines := source.count("\n")) > limits.module:
        yield f"{name} has {lines} lines"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = _statement_lines(node)
            if lines > limits.function:
                yield f"{name}: {node.name} has {lines} lines of statements"


def _too_many_attributes(name: str, source: str) -> Iterator[str]:
    records = {key: classes for key, classes in RECORDS.items() if Path(name).is_relative_to(key)}
    for kind in _classes(ast.parse(source)):
        exempt = any(classes is None or kind.name in classes for classes in records.values())
        if not exempt and (count := len(_attributes(kind))) > MOST_ATTRIBUTES:
            yield f"{name}: {kind.name} has {count} attributes"


def _classes(tree: ast.AST) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def _statement_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    has_docstring = ast.get_docstring(function) is not None
    body = function.body[1:] if has_docstring else function.body
    inner = sum(_lines(node) for statement in body for node in _classes(statement))
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 - inner if body else 0


def _lines(node: ast.ClassDef) -> int:
    return (node.end_lineno or 0) - node.lineno + 1


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
