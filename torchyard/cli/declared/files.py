"""The files of a program that may declare its options: its own, and those of the folder that it imports."""

import ast
from collections.abc import Iterator
from itertools import islice
import os
from pathlib import Path, PurePosixPath
import warnings

from torchyard.host.untrusted import read_given

_MOST_FILES = 64
_MOST_IMPORTS = 1000
"""Names that one file imports and that are looked for in the folder."""
_MOST_BYTES = 1 << 20
"""Of one file: a larger one declares no options by hand."""


def modules(folder: Path, file: str) -> Iterator[tuple[str, ast.Module]]:
    """Yields the program's file and those that it imports, parsed. What cannot be read or parsed is left out."""
    waiting, seen = [file], {file}
    beside = PurePosixPath(file).parent
    while waiting and len(seen) <= _MOST_FILES:
        name = waiting.pop(0)
        tree = _parsed(folder / name)
        if tree is None:
            continue
        yield name, tree
        for roots, module in islice(_imported(tree, PurePosixPath(name).parent, beside), _MOST_IMPORTS):
            found = _found(roots, module, folder)
            if found is not None and found not in seen:
                seen.add(found)
                waiting.append(found)


def texts(call: ast.Call) -> list[str]:
    """Returns the arguments of a call that are texts."""
    return [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]


def written(node: ast.AST) -> str:
    """Returns the source of an expression; empty for one that is nested too deeply."""
    try:
        return ast.unparse(node)
    except RecursionError:
        return ""


def _parsed(path: Path) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(read_given(path, _MOST_BYTES))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _imported(
    tree: ast.Module, package: PurePosixPath, beside: PurePosixPath
) -> Iterator[tuple[list[PurePosixPath], str]]:
    """Yields the modules that a module imports, and where they may be. `beside`: the folder of the program."""
    anywhere = [beside, PurePosixPath(), PurePosixPath("src")]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield anywhere, alias.name
        elif isinstance(node, ast.ImportFrom):
            above = [package, *package.parents]
            roots = above[node.level - 1 : node.level] if node.level else anywhere
            base = node.module or ""
            for alias in node.names:
                yield roots, f"{base}.{alias.name}".strip(".")
            if base:
                yield roots, base


def _found(roots: list[PurePosixPath], module: str, folder: Path) -> str | None:
    """Returns the first of the files that a module may be."""
    for root in roots:
        path = root.joinpath(*module.split("."))
        for name in (f"{path}.py", f"{path}/__init__.py"):
            if os.path.isfile(folder / name):  # noqa: PTH113 Path.is_file raises for a name that is too long
                return name
    return None
