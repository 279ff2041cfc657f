"""Describes the fields of views in the OpenAPI document by the strings below them in the source."""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
import inspect
from itertools import pairwise
import sys
from typing import Any

from torchyard.contract.wire.view import View


def describe(schemas: dict[str, Any]) -> None:
    """Adds the missing descriptions of properties. Pydantic would parse the sources at each import of a view."""
    for view in _below(View):
        properties = schemas.get(view.__name__, {}).get("properties", {})
        for owner in view.__mro__:
            texts = _texts(owner.__module__).get(owner.__name__, {}) if issubclass(owner, View) else {}
            for name in texts.keys() & properties.keys():
                properties[name].setdefault("description", texts[name])


def _below(view: type[View]) -> Iterator[type[View]]:
    for each in view.__subclasses__():
        yield each
        yield from _below(each)


@cache
def _texts(module: str) -> Mapping[str, Mapping[str, str]]:
    """Returns the string below each field, by class and name."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {each.name: dict(_described(each)) for each in tree.body if isinstance(each, ast.ClassDef)}


def _described(owner: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, text in pairwise(owner.body):
        match field, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(words))),
            ):
                yield name, inspect.cleandoc(words)
            case _:
                pass
