"""The modules whose functions are mutated, and one function in its mutated form."""

import ast
from collections.abc import Iterator
from functools import cache
import gc
from pathlib import Path
from types import CodeType, FunctionType

from tests.mutants.mutations import Function, Mutation, apply, functions

ROOT = Path(__file__).parents[2]
AREAS = {
    "store": ("store",),
    "scheduling": ("scheduling",),
    "api/auth": ("api/auth",),
    "worker/attempts": ("worker/attempts",),
    "torchyard/contract": ("torchyard/contract",),
}
"""Each area, and the folders of its modules: of the store those that write."""
SEARCHED = ("store", "scheduling", "api", "worker", "torchyard", "controller", "trainer")
"""Where a function may have moved."""


def modules(area: str) -> list[Path]:
    """Returns the modules of an area, from the root of the tree."""
    return sorted(path.relative_to(ROOT) for folder in AREAS[area] for path in (ROOT / folder).rglob("*.py"))


@cache
def functions_of(module: Path) -> dict[str, Function]:
    """Returns the functions and methods of a module, by their qualified names."""
    return functions(ast.parse((ROOT / module).read_text(encoding="utf-8")))


def find(mutation: Mutation, *, module: Path) -> Path | None:
    """Returns the module that has the mutation's source now: that one, or else the only other one."""
    if module in _holding(mutation):
        return module
    return _holding(mutation)[0] if len(_holding(mutation)) == 1 else None


def loaded() -> dict[tuple[str, str], list[FunctionType]]:
    """Returns the functions of the loaded modules, each in all its forms, by their files and qualified names."""
    found: dict[tuple[str, str], list[FunctionType]] = {}
    gc.unfreeze()
    for function in gc.get_objects():
        if type(function) is FunctionType:  # an object may warn when it is asked what it is
            key = (function.__code__.co_filename, function.__code__.co_qualname)
            found.setdefault(key, []).append(function)
    gc.freeze()
    return found


def code(module: Path, mutation: Mutation) -> CodeType:
    """Returns the compiled code of the mutated function.

    Raises:
        LookupError: the module does not have the mutation's source.
    """
    tree = ast.parse((ROOT / module).read_text(encoding="utf-8"))
    function = functions(tree).get(mutation.function)
    if function is None or not apply(function, mutation):
        raise LookupError(f"{module} has no {mutation.function} with {mutation.before!r}")
    return _code(compile(tree, str(ROOT / module), "exec"), mutation.function)


def original(module: Path, function: str) -> CodeType:
    """Returns the compiled code of the function as it is."""
    return _code(compile((ROOT / module).read_text(encoding="utf-8"), str(ROOT / module), "exec"), function)


def with_inner(code: CodeType) -> list[CodeType]:
    """Returns the code of a function, and of the functions in it that have names: two lambdas are not told apart."""
    return [code, *(inner for inner in _codes(code) if not inner.co_name.startswith("<"))]


def _code(module: CodeType, qualified: str) -> CodeType:
    return next(found for found in _codes(module) if found.co_qualname == qualified)


def _codes(outer: CodeType) -> Iterator[CodeType]:
    for constant in outer.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


@cache
def _holding(mutation: Mutation) -> list[Path]:
    found: list[Path] = []
    named = f"def {mutation.function.rpartition('.')[2]}"
    for path in sorted(path.relative_to(ROOT) for folder in SEARCHED for path in (ROOT / folder).rglob("*.py")):
        if named not in (ROOT / path).read_text(encoding="utf-8"):
            continue
        if mutation.function in functions_of(path):
            try:
                code(path, mutation)
            except LookupError:
                continue
            found.append(path)
    return found
