"""Finds the sentences in sources of Python that somebody reads: what is raised, and what a function says."""

import ast
from collections.abc import Iterator, Sequence
from contextlib import suppress
import re

_WORDS = re.compile(r"[^\W\d_]{2,}[,.:;]? +(?:[^\W\d_]|\{)")
"""Two words, at least."""
_NO_SENTENCE = re.compile(
    r"(?:SELECT|INSERT|UPDATE|DELETE|CREATE|DROP|ALTER|PRAGMA|WITH|BEGIN|UNION|AND) |\b(?:IN \(|IS NULL|IS NOT NULL)"
    r"|redis\.call|^local |\\[dswb(]|\(\?[:P]|^\s*(?:import|def) "
)
"""SQL, the scripts of Redis, patterns and programs."""
_HELP = re.compile(r"(?!\w+s\b|The\b|Whether\b)")
"""The help of a command begins with an imperative; what other functions do is for those who read the code."""
_RAISE = re.compile(r" *raise [\w.]+\(")
_LOGGED = {"debug", "info", "warning", "error", "exception", "critical"}
_NOT_READ = {"compile", "text", "write", "read", "failpoint", "TypeVar", "cast"}
"""Functions of whose texts no user reads a word: patterns, SQL, names of transactions."""


def raised(source: str) -> Iterator[str]:
    """Yields the texts of exceptions, in the order of the source. It parses these statements alone."""
    lines = source.splitlines()
    for number, line in enumerate(lines):
        if _RAISE.match(line):
            exception = _statement(lines, number).exc
            if isinstance(exception, ast.Call):
                for argument in (*exception.args, *(keyword.value for keyword in exception.keywords)):
                    yield from _texts(argument)


def said(tree: ast.Module, *, helps: bool) -> Iterator[str]:
    """Yields all other texts, in the order of the source. `helps`: those of functions too, which are help texts."""
    yield from _said(tree, helps=helps)


def _statement(lines: Sequence[str], number: int) -> ast.Raise:
    """Returns the statement that begins in a line. Raises ValueError."""
    for end in range(number + 1, len(lines) + 1):
        with suppress(SyntaxError):
            (statement,) = ast.parse("\n".join(lines[number:end]).lstrip()).body
            assert isinstance(statement, ast.Raise)
            return statement
    raise ValueError(f"the statement in line {number + 1} has no end")


def _said(node: ast.AST, *, helps: bool) -> Iterator[str]:
    if isinstance(node, (ast.Raise, ast.Assert)) or (isinstance(node, ast.Call) and _is_not_read(node)):
        return
    if isinstance(node, (ast.JoinedStr, ast.Constant)):
        yield from _texts(node)
        return
    body = getattr(node, "body", None)
    docstring = body[0] if isinstance(body, list) and body and _is_text(body[0]) else None
    if helps and docstring is not None and isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
        text = ast.get_docstring(node) or ""
        if _HELP.match(text):
            yield text
    for child in ast.iter_child_nodes(node):
        if not _is_text(child):
            yield from _said(child, helps=helps)


def _is_text(node: ast.AST) -> bool:
    """Returns whether a statement is a text alone: a docstring, or the description of an attribute."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_not_read(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    of_logger = isinstance(call.func, ast.Attribute) and getattr(call.func.value, "id", "") in {"logger", "logging"}
    is_terminal = isinstance(call.func, ast.Attribute) and getattr(call.func.value, "id", "") == "terminal"
    return (of_logger and name in _LOGGED) or (name in _NOT_READ and not is_terminal)


def _texts(node: ast.AST) -> Iterator[str]:
    """Yields the text of a constant or an f-string that has words, with its values as `{name}`."""
    if isinstance(node, ast.JoinedStr):
        text = "".join(_part(part) for part in node.values)
        if _WORDS.search(text) and not _NO_SENTENCE.search(text):
            yield text
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                yield from _texts(part.value)
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, str) and _WORDS.search(node.value) and not _NO_SENTENCE.search(node.value):
            yield node.value
    else:
        for child in ast.iter_child_nodes(node):
            yield from _texts(child)


def _part(part: ast.expr) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    assert isinstance(part, ast.FormattedValue)
    name = part.value
    while isinstance(name, (ast.Call, ast.Subscript)):
        name = name.func if isinstance(name, ast.Call) else name.value
    found = name.attr if isinstance(name, ast.Attribute) else name.id if isinstance(name, ast.Name) else "…"
    return f"{{{found}}}"
