"""Whether an answer is one that the API may give, by its OpenAPI document."""

from functools import cache
import json
import re
from typing import Any

import jsonschema_rs

from tests import forks

forks.preload("tests.torchyard.client.openapi")  # it is made once, before the tests' processes are forked

_JSON = "application/json"
_OF_WORKERS = "/v1/worker/"
"""Requests of remote workers: they are not part of the public API, so the document leaves them out."""


def refusal(method: str, path: str, status: int, body: Any) -> str | None:
    """Returns what is wrong with this answer of the API, or None."""
    if path.startswith(_OF_WORKERS):
        return None
    operation = next(
        (found[method.lower()] for pattern, found in _paths() if pattern.fullmatch(path) and method.lower() in found),
        None,
    )
    if operation is None:
        return f"the API has no {method} {path}"
    if str(status) not in operation["responses"]:
        return None if status >= 400 else f"{method} {path} never answers {status}"
    schema = operation["responses"][str(status)].get("content", {}).get(_JSON, {}).get("schema")
    if schema is None:
        return None
    wrong = next(_validator(json.dumps(schema)).iter_errors(body), None)
    return None if wrong is None else f"{method} {path} never answers this: {wrong.message} at {wrong.instance_path}"


@cache
def _validator(schema: str) -> Any:
    return jsonschema_rs.validator_for({**json.loads(schema), "components": _document()["components"]})


@cache
def _paths() -> list[tuple[re.Pattern[str], dict[str, Any]]]:
    """Returns the operations of each path, those without a parameter first."""
    paths = sorted(_document()["paths"].items(), key=lambda item: item[0].count("{"))
    return [(re.compile(re.sub(r"\{[^}]*\}", "[^/]+", path)), operations) for path, operations in paths]


@cache
def _document() -> dict[str, Any]:
    from tests.torchyard.client.openapi import DOCUMENT

    return DOCUMENT
