"""One request, and what the requests have in common."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
import json
from typing import Any, Generic, TypeVar
from urllib.parse import quote
from uuid import uuid4

from pydantic import BaseModel

from torchyard.contract.errors import InvalidSpec, TooLarge
from torchyard.contract.team.codes import CodeKind
from torchyard.contract.team.views import NewCodeView
from torchyard.contract.wire.view import View

V = TypeVar("V", bound=BaseModel)
Spec = Mapping[str, Any] | BaseModel
Params = Mapping[str, str | float | Sequence[str] | None]

JSON = {"Content-Type": "application/json"}
LARGE_PAGE = 1000
"""The most items in one answer."""
LONGEST_PAGE = 100
"""The most jobs or bundles in one answer."""


@dataclass(frozen=True)
class Call(Generic[V]):
    """One request. `view` is the model of the answer's body. A `repeatable` call may arrive twice without harm."""

    view: type[V]
    method: str
    path: str
    params: Params = field(default_factory=dict[str, Any])
    content: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    repeatable: bool = True


def head(path: str) -> Call[View]:
    return Call(View, "HEAD", path)


def next_page(call: Call[V], cursor: str) -> Call[V]:
    """Returns the call for the page of a list that follows `cursor`."""
    return replace(call, params={**call.params, "after": cursor})


def new_code(kind: CodeKind, name: str, *, users: Sequence[str] | None = None) -> Call[NewCodeView]:
    """Returns the call that makes a code for a worker or a user. `users`: whose jobs the worker takes; None: all."""
    limit = {} if users is None else {"users": [*users]}
    content = json.dumps({"kind": kind, "name": name, **limit})
    return Call(NewCodeView, "POST", "/v1/codes", content=content, headers=JSON, repeatable=False)


def job_path(job_id: str) -> str:
    return f"/v1/jobs/{segment(job_id)}"


def segment(text: str) -> str:
    # `..` would change the path.
    return quote(text, safe="") if text.strip(".") else text.replace(".", "%2E")


def given(changes: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in changes.items() if value is not None}


def bounded(limit: int | None) -> int:
    return LARGE_PAGE if limit is None else max(1, min(limit, LARGE_PAGE))


def idempotency(key: str | None) -> dict[str, str]:
    """Returns the header with which a call that arrives twice makes one job."""
    return {"Idempotency-Key": key or str(uuid4())}


def encoded(spec: Spec, *, what: str, most: int) -> str:
    """Returns the spec as JSON. Raises InvalidSpec, and TooLarge beyond so many bytes."""
    try:
        text = spec.model_dump_json() if isinstance(spec, BaseModel) else json.dumps(spec, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidSpec(f"the {what} cannot be written as JSON: {error}") from None
    size = len(text.encode())
    if size > most:
        raise TooLarge(f"the {what} has {size} bytes: submit at most {most}")
    return text
