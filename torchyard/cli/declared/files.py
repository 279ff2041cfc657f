"""The files of a program that may declare its options: its own, and those of the folder that it imports."""

import ast
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
import warnings

_MOST_FILES = 64
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
        for found in _imported(tree, PurePosixPath(name).parent, beside, folder):
            if found not in seen:
                seen.add(found)
                waiting.append(found)


def _parsed(path: Path) -> ast.Module | None:
    try:
        if path.stat().st_size > _MOST_BYTES:
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _imported(tree: ast.Module, package: PurePosixPath, beside: PurePosixPath, folder: Path) -> Iterator[str]:
    """Yields the files of the folder that a module imports. `beside`: the folder of the program."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _found([beside, PurePosixPath(), PurePosixPath("src")], alias.name, folder)
        elif isinstance(node, ast.ImportFrom):
            roots = [beside, PurePosixPath(), PurePosixPath("src")]
            if node.level:
                above = [package, *package.parents]
                roots = above[node.level - 1 : node.level]
            base = node.module or ""
            for alias in node.names:
                yield from _found(roots, f"{base}.{alias.name}".strip("."), folder)
            if base:
                yield from _found(roots, base, folder)


def _found(roots: list[PurePosixPath], module: str, folder: Path) -> Iterator[str]:
    """Yields the first of the files that a module may be."""
    for root in roots:
        path = root.joinpath(*module.split("."))
        for name in (f"{path}.py", f"{path}/__init__.py"):
            if (folder / name).is_file():
                yield name
                return
