"""The components of the OpenAPI document: schemas, headers, and one problem for each status."""

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from api.errors import PROBLEM_TYPE
from torchyard.contract.errors import (
    Conflict,
    FieldError,
    FileTooLarge,
    Forbidden,
    HeadersTooLarge,
    HostNotAllowed,
    IdempotencyMismatch,
    InvalidBundle,
    InvalidCursor,
    InvalidRequest,
    InvalidSpec,
    MalformedHttp,
    MethodNotAllowed,
    NotAuthorized,
    NotFound,
    NotText,
    OwnerDisabled,
    QuotaExceeded,
    RangeNotSatisfiable,
    RequestTimeout,
    SessionEnded,
    TooLarge,
    TooManyRequests,
    TorchyardError,
    Unavailable,
    UnknownRoute,
    UrlTooLong,
)
from torchyard.contract.spec.spec import SPEC
from torchyard.contract.telemetry.views import (
    ChangedView,
    EndView,
    ItemsView,
    ListedView,
    LiveLine,
    MetricView,
    StreamCursor,
)
from torchyard.contract.wire.view import Problem

SCHEMA = "#/components/schemas/{model}"
_SENT = "#/components/schemas/{model}-Sent"
"""Name of the schemas of specs in requests, which may omit defaults. In answers, specs have them all."""

JOB = "job_0197f3c2a9b47c1e8d20f6b1c4e5a703"
"""The id in examples."""
_FIELD = FieldError("config.training.epochs", "must be at least 1")

_PROBLEMS: dict[type[TorchyardError], str] = {
    InvalidSpec: "the job spec is not valid",
    InvalidRequest: "the parameters are not valid",
    InvalidBundle: "'train.py' is in the bundle twice",
    InvalidCursor: "'yesterday' is not a `next` value of this list",
    IdempotencyMismatch: f"the key 'nightly-7' was used for another request, which created job {JOB}",
    NotAuthorized: "send the header `Authorization: Bearer TOKEN`",
    Forbidden: "this needs the scope cluster:write, which your role or your token does not have",
    OwnerDisabled: "the user alice is disabled",
    QuotaExceeded: "alice may have 100 queued or paused jobs and has 100: wait, or cancel some",
    NotFound: f"there is no job {JOB}",
    UnknownRoute: "GET /v1/absent: Not Found",
    SessionEnded: "the session has ended: log in again",
    MethodNotAllowed: "PUT /v1/jobs: Method Not Allowed",
    Conflict: f"job {JOB} has succeeded: it cannot be cancelled",
    TooLarge: "send at most 1048576 bytes",
    FileTooLarge: "'data.csv' has 300000 bytes: of files up to 262144 bytes the text is sent",
    NotText: "the file has NUL bytes, so it is no text",
    RangeNotSatisfiable: "the file has 1024 bytes",
    TooManyRequests: "send at most 100 requests a second; try again in 1 s",
    Unavailable: "the database does not answer",
    MalformedHttp: "send exactly one `Host` header, with a name or an address (RFC 9112, 3.2)",
    RequestTimeout: "the request's head was not complete within 10 s",
    UrlTooLong: "send a URL of at most 8192 bytes",
    HostNotAllowed: "'a.example' is not a name of this service: its operator can add it to TORCHYARD_ALLOWED_HOSTS",
    HeadersTooLarge: "send at most 100 headers of 32768 bytes together",
}
"""Every error that the service answers, with an example of its detail. `internal` is left out: it is a defect."""

_HEADERS: dict[str, dict[str, Any]] = {
    "X-Request-ID": {
        "description": "The request's id in the service's log: the id that the caller sent, if it was valid"
    },
    "Accept-Ranges": {"description": "`bytes`: the file supports `Range` requests"},
    "Allow": {"description": "The methods that this path has", "example": "GET, POST"},
    "Content-Disposition": {
        "description": "A name for the file",
        "example": 'attachment; filename="digits-epoch-3.pt"',
    },
    "Content-Range": {
        "description": "The bytes that were sent, and the file's size; absent if there are several parts",
        "required": False,
        "example": "bytes 0-499/1024",
    },
    "ETag": {"description": "Identifies this content; send it as `If-None-Match`", "example": '"5"'},
    "Idempotent-Replayed": {
        "description": "`true` if this is the answer to an earlier request with the same `Idempotency-Key`",
        "required": False,
        "schema": {"type": "string", "enum": ["true"]},
    },
    "Location": {"description": "The path of the new job", "example": f"/v1/jobs/{JOB}"},
    "Repr-Digest": {
        "description": "The sha256 of the whole file (RFC 9530)",
        "example": "sha-256=:d435Qo+nKZ+gLcUHn7GQtQ72hiBVAgqoLsZnZPiTGPk=:",
    },
    "Retry-After": {
        "description": "Seconds to wait before the request is repeated",
        "schema": {"type": "integer", "minimum": 1},
    },
    "WWW-Authenticate": {"description": "How to authorize", "example": "Bearer"},
}

_VIEWS = (Problem, MetricView, EndView, LiveLine, ItemsView, StreamCursor, ListedView, ChangedView)
"""Views that are sent only in streams and as problems."""
_HEADERS_OF = {401: "WWW-Authenticate", 405: "Allow", 416: "Content-Range", 429: "Retry-After", 503: "Retry-After"}
"""The header that a problem of each status has."""

_PARAMETERS: dict[str, tuple[str, str]] = {
    "Content-Encoding": ("`zstd` if the body is one zstd stream, with a window of at most 8 MiB (RFC 9659)", "zstd"),
    "If-None-Match": (
        "the `ETag` of what the caller has: if it is current, the answer is 304 without content",
        '"5"',
    ),
    "If-Range": ("the `ETag` of the parts that the caller has: if it is not current, the whole file is sent", '"5"'),
    "Range": ("the parts to send, in bytes", "bytes=0-499"),
}


def completed(components: dict[str, Any], bodies: Iterable[type[BaseModel]]) -> dict[str, Any]:
    """Returns `components` with everything that the operations refer to. `bodies`: the schemas of requests."""
    return {
        **components,
        "schemas": _schemas(components["schemas"], bodies),
        "parameters": {name: _parameter(name, *rest) for name, rest in _PARAMETERS.items()},
        "headers": {name: _header(**header) for name, header in _HEADERS.items()},
        "examples": {kind.code: _example(kind, detail) for kind, detail in _PROBLEMS.items()},
        "responses": {_name(status): _response(status) for status in sorted({kind.status for kind in _PROBLEMS})},
    }


def headers(*names: str) -> dict[str, Any]:
    """Returns references to the headers."""
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def parameter(name: str) -> dict[str, Any]:
    """Returns a reference to a request's header."""
    return {"$ref": f"#/components/parameters/{name}"}


def problem(status: int) -> dict[str, Any]:
    """Returns a reference to the answer for all errors of a status."""
    return {"$ref": f"#/components/responses/{_name(status)}"}


def _schemas(schemas: dict[str, Any], bodies: Iterable[type[BaseModel]]) -> dict[str, Any]:
    spec = SPEC.json_schema(mode="validation", ref_template=_SENT)
    _, views = models_json_schema([(view, "serialization") for view in _VIEWS], ref_template=SCHEMA)
    _, requests = models_json_schema(
        [(request, "validation") for request in dict.fromkeys(bodies)], ref_template=SCHEMA
    )
    unused = ("HTTPValidationError", "ValidationError")
    return {
        **{name: schema for name, schema in schemas.items() if name not in unused},
        **{f"{name}-Sent": schema for name, schema in spec.pop("$defs").items()},
        "JobSpec-Sent": spec,
        **requests["$defs"],
        **views["$defs"],
    }


def _parameter(name: str, description: str, example: str) -> dict[str, Any]:
    schema = {"type": "string", "examples": [example]}
    return {"name": name, "in": "header", "description": description, "schema": schema}


def _header(*, description: str, required: bool = True, **more: Any) -> dict[str, Any]:
    return {"description": description, "required": required, "schema": {"type": "string"}, **more}


def _example(kind: type[TorchyardError], detail: str) -> dict[str, Any]:
    errors = (_FIELD,) if kind is InvalidSpec else ()
    problem = Problem.of(kind(detail, errors=errors), request_id="req_0197f3c2b1d07e55a1f3c02d9b6e4f18")
    return {"summary": kind.title, "value": problem.model_dump(mode="json")}


def _name(status: int) -> str:
    return f"Problem{status}"


def _response(status: int) -> dict[str, Any]:
    kinds = [kind for kind in _PROBLEMS if kind.status == status]
    examples = {kind.code: {"$ref": f"#/components/examples/{kind.code}"} for kind in kinds}
    own = (_HEADERS_OF[status],) if status in _HEADERS_OF else ()
    return {
        "description": " · ".join(kind.title for kind in kinds),
        "headers": headers("X-Request-ID", *own),
        "content": {PROBLEM_TYPE: {"schema": {"$ref": SCHEMA.format(model="Problem")}, "examples": examples}},
    }
