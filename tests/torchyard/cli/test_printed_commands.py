"""Every `torchyard …` that a program or the page names is a command that the command line reads."""

import ast
from collections.abc import Iterator
from pathlib import Path
import re
import shlex

import pytest

from tests.torchyard.cli.reading import commands, read

ROOT = Path(__file__).parents[3]
PACKAGES = ("torchyard", "scheduling", "store", "api", "controller", "worker", "trainer", "migrations")
CALL = "output.command()"
MARK = "\0"
"""Stands for the name by which the user calls the program, which is found when it is printed."""
ENDS = re.compile(rf"[`,;:()\n{MARK}]|\. |\.$")
"""What follows a command in a sentence."""
WHOLE = re.compile(r"`torchyard ([a-z][^`]*)`")
"""A command in a text. One that `output.command()` begins needs no quotes."""
CODE = re.compile(r"<code>torchyard ([a-z][^<]*)</code>")


@pytest.mark.parametrize("package", PACKAGES)
def test_the_command_line_reads_each_command_that_a_program_names(package: str) -> None:
    found = [(where, line) for path in (ROOT / package).rglob("*.py") for where, line in _named(path)]
    wrong = {f"{where}: {line}": error for where, line in found if (error := _error(line)) is not None}
    assert not wrong
    assert found or package not in {"torchyard", "api", "store"}


def test_the_command_line_reads_each_command_that_the_page_names() -> None:
    pages = [path for kind in ("ts", "svelte") for path in (ROOT / "web/src").rglob(f"*.{kind}")]
    texts = {path: path.read_text() for path in pages if ".test." not in path.name}
    lines = [(path.name, re.sub(r"\{[^}]*\}", "1", line)) for path in texts for line in CODE.findall(texts[path])]
    wrong = {f"{where}: {line}": error for where, line in lines if (error := _error(line)) is not None}
    assert not wrong
    names = [(path.name, name) for path in texts for name in re.findall(r"\btorchyard ([a-z]+)", texts[path])]
    known = {name.split()[0] for name in commands()}
    assert [(where, name) for where, name in names if name not in known] == []
    assert len(lines) > 5 and len(names) > len(lines)


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ('note(f"{output.command()} download {job.id} {ref}")', "download 1 1"),
        ('command = output.command()\nf"Stop it: {command} cancel {job.id}, or wait"', "cancel 1"),
        ('"say `torchyard shwo x` again"', "shwo x"),
    ],
)
def test_a_wrong_command_in_a_program_is_found(tmp_path: Path, source: str, line: str) -> None:
    file = tmp_path / "a.py"
    file.write_text(source)
    assert [found for _, found in _named(file)] == [line]
    assert (_error(line) is None) == line.startswith("cancel")


def _named(path: Path) -> Iterator[tuple[str, str]]:
    """Yields the arguments of each command that a module's texts name, and where."""
    source = path.read_text()
    if CALL not in source and "torchyard " not in source:
        return
    tree = ast.parse(source)
    names = {CALL} | ({"command"} if f"command = {CALL}" in source else set())
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if id(node) in inner or not isinstance(node, ast.JoinedStr | ast.Constant):
            continue
        text = _text(node, names)
        for line in (*WHOLE.findall(text), *(ENDS.split(part)[0] for part in text.split(f"{MARK} ")[1:])):
            yield f"{path.name}:{node.lineno}", line.strip()


def _text(node: ast.expr, names: set[str]) -> str:
    """Returns the text, with MARK for a value in it that is one of `names`, and 1 for every other value."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part, names) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return MARK if ast.unparse(node.value) in names else "1"
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _error(line: str) -> str | None:
    """Returns why the command line does not read the line; None if it does, or if it only names a command."""
    words = shlex.split(line.partition(" < ")[0])
    if line in commands():
        return None
    try:
        read(["." if word == "DIR" else word for word in words])
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what the user would see
        return str(error) or repr(error)
    return None
