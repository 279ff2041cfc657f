"""Specs of tests, and changes of them."""

from collections.abc import Mapping
from typing import Any

import pytest

from torchyard.contract.errors import InvalidSpec
from torchyard.contract.spec.spec import parse_spec

IMAGES: dict[str, Any] = {"trainer": "image-classification"}
MASKS: dict[str, Any] = {"trainer": "segmentation", "config": {"data": {"source": "file:///pictures"}}}
TEXTS: dict[str, Any] = {"trainer": "text-classification", "config": {"data": {"source": "file:///texts"}}}
WORDS: dict[str, Any] = {
    "trainer": "causal-lm",
    "config": {"model": {"weights": "file:///base"}, "data": {"source": "file:///words.jsonl"}},
}
RECIPES = {spec["trainer"]: spec for spec in (IMAGES, MASKS, TEXTS, WORDS)}
SCRIPT: dict[str, Any] = {"trainer": "script", "config": {"code": "file:///code"}}

every_recipe = pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def put(spec: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of `spec` with `value` at the dotted `path`."""
    head, _, rest = path.partition(".")
    return spec | {head: put(spec.get(head, {}), rest, value) if rest else value}


def put_all(spec: dict[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    for path, value in values.items():
        spec = put(spec, path, value)
    return spec


def refused(raw: object) -> dict[str, str]:
    """The refusal of `raw`: each field with its message."""
    with pytest.raises(InvalidSpec) as caught:
        parse_spec(raw)
    assert caught.value.errors
    return {error.field: error.message for error in caught.value.errors}
