import ast
from pathlib import Path

import pytest

from tests.mutants import drawn, sources
from tests.mutants.drawn import Mutant
from tests.mutants.mutations import Mutation, apply, functions, line, mutations

SOURCE = '''
class Line:
    def claim(self, row, limit=3):
        """Claims a row."""
        if row.seq < limit and not row.taken:
            self.update(row, where(row.id == 1, row.state == "queued"))
        return row.seq + 1
'''


@pytest.fixture
def claim() -> ast.FunctionDef | ast.AsyncFunctionDef:
    return functions(ast.parse(SOURCE))["Line.claim"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("row.seq < limit", "row.seq <= limit"),
        ("row.seq < limit and (not row.taken)", "row.seq < limit or not row.taken"),
        ("not row.taken", "row.taken"),
        ("row.id == 1", "row.id != 1"),
        ("1", "2"),
        ("row.seq + 1", "row.seq - 1"),
        ("return row.seq + 1", "return None"),
        ("where(row.id == 1, row.state == 'queued')", "where(row.state == 'queued')"),
        ("where(row.id == 1, row.state == 'queued')", "where(row.id == 1)"),
        ("self.update(row, where(row.id == 1, row.state == 'queued'))", "pass"),
    ],
)
def test_each_kind_of_change_is_found(claim: ast.FunctionDef | ast.AsyncFunctionDef, before: str, after: str) -> None:
    found = {(mutation.before, mutation.after): mutation for mutation in mutations("Line.claim", claim)}
    assert apply(claim, found[before, after])
    assert after in ast.unparse(claim)


def test_defaults_docstrings_and_texts_stay(claim: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    before = {mutation.before for mutation in mutations("Line.claim", claim)}
    assert not before & {"3", "'queued'", "'Claims a row.'"}


def test_equal_sources_are_told_apart_by_their_index() -> None:
    function = functions(ast.parse("def both(a):\n    x = a + 1\n    y = a + 1\n    return x, y"))["both"]
    second = Mutation("both", "a + 1", "a - 1", 1)
    assert line(function, second) == 3
    assert apply(function, second)
    assert ast.unparse(function) == "def both(a):\n    x = a + 1\n    y = a - 1\n    return (x, y)"
    assert not apply(function, Mutation("both", "a + 1", "a - 1", 7))


def test_a_function_that_has_moved_is_found_again() -> None:
    function = sources.functions_of(Path("scheduling/price.py"))
    name = next(iter(function))
    mutation = next(mutations(name, function[name]))
    assert sources.find(mutation, module=Path("scheduling/another.py")) == Path("scheduling/price.py")
    assert sources.find(Mutation(name, "gone(1)", "gone(2)", 0), module=Path("scheduling/price.py")) is None


def test_mutants_are_read_as_they_were_written(tmp_path: Path) -> None:
    mutants = [
        Mutant(
            "store", "store/a.py", Mutation("claim", "a < b", "a <= b", 0), "killed", killer="tests/test_a.py::test"
        ),
        Mutant("store", "store/a.py", Mutation("claim", "c", "d", 1), "equivalent", reason="c is d"),
    ]
    drawn.write(mutants, tmp_path / "mutants.json")
    assert drawn.read(tmp_path / "mutants.json") == mutants
