"""The OpenAPI document: what the framework cannot see of the routes by itself."""

from collections.abc import Iterable
from typing import Any

from torchyard.errors import (
    Conflict,
    FieldError,
    InvalidCursor,
    InvalidRequest,
    InvalidSpec,
    MethodNotAllowed,
    NotAuthorized,
    NotFound,
    RangeNotSatisfiable,
    TooLarge,
    TorchyardError,
    Unavailable,
)
from torchyard.spec import SPEC
from torchyard.views import Problem

PROBLEM_TYPE = "application/problem+json"
"""The media type of every error."""

DESCRIPTION = """\
Send `Authorization: Bearer TOKEN` with every request below `/v1`, and with `/metrics`.

Every error is an RFC 9457 problem, `application/problem+json`; its `code` never changes once published. A method that
is not listed at a path answers 405 with `Allow`. Lists come in pages: send the `next` of one as `after` to get the one
behind it. Every answer has an `X-Request-ID`, which names the request in the service's log.
"""

TAGS = [
    {"name": "jobs", "description": "Submit, watch, change, cancel and remove training jobs."},
    {"name": "telemetry", "description": "What a job says while it runs: events, metrics and logs."},
    {"name": "checkpoints", "description": "What a job saved, and the bytes of it."},
    {"name": "cluster", "description": "What there is to train with, and who waits for it."},
    {"name": "service", "description": "Whether the service lives, can work, and how it does."},
]

_VERSION = "3.2.0"  # the first that describes an event stream's items
_SCHEMA = "#/components/schemas/{model}"
_SENT = "#/components/schemas/{model}-Sent"
"""Of a spec as it is sent, where defaults may be left out; the answer's spec has them all."""

_JOB = "job_0197f3c2a9b47c1e8d20f6b1c4e5a703"
_FIELD = FieldError("config.training.epochs", "Input should be greater than or equal to 1")

_PROBLEMS: dict[type[TorchyardError], str] = {
    InvalidSpec: "the job spec is not valid",
    InvalidRequest: "the parameters are not valid",
    InvalidCursor: "'yesterday' is no number that this list gave as `next`",
    NotAuthorized: "send the header `Authorization: Bearer TOKEN`",
    NotFound: f"there is no job {_JOB}",
    MethodNotAllowed: "PUT /v1/jobs: Method Not Allowed",
    Conflict: f"job {_JOB} has succeeded: it cannot be cancelled",
    TooLarge: "send at most 1048576 bytes",
    RangeNotSatisfiable: "the file has 1024 bytes",
    Unavailable: "the database does not answer",
}
"""Every error that the service answers, with an example of its detail; but for `internal`, which is a defect."""

_HEADERS: dict[str, dict[str, Any]] = {
    "X-Request-ID": {
        "description": "Names the request in the service's log: the caller's own, where it sent a sound one"
    },
    "Accept-Ranges": {"description": "`bytes`: parts may be asked for with `Range`"},
    "Allow": {"description": "The methods that are possible here", "example": "GET, POST"},
    "Content-Disposition": {
        "description": "A name for the file",
        "example": 'attachment; filename="digits-epoch-3.pt"',
    },
    "Content-Range": {"description": "Which bytes these are, of how many", "example": "bytes 0-499/1024"},
    "ETag": {"description": "Names this very content; send it as `If-None-Match`", "example": '"5"'},
    "Idempotent-Replayed": {
        "description": "`true` where this is the answer to an earlier request with the same `Idempotency-Key`",
        "required": False,
        "schema": {"type": "string", "enum": ["true"]},
    },
    "Location": {"description": "Where the new job is", "example": f"/v1/jobs/{_JOB}"},
    "Repr-Digest": {
        "description": "The sha256 of the whole file (RFC 9530)",
        "example": "sha-256=:d435Qo+nKZ+gLcUHn7GQtQ72hiBVAgqoLsZnZPiTGPk=:",
    },
    "Retry-After": {"description": "Seconds to wait before the next try", "schema": {"type": "integer", "minimum": 1}},
    "WWW-Authenticate": {"description": "How to authorize", "example": "Bearer"},
}

_HEADERS_OF = {401: "WWW-Authenticate", 405: "Allow", 416: "Content-Range", 503: "Retry-After"}
"""The header that the problem of a status has."""

_PATH_PARAMETERS: dict[str, tuple[str, list[str]]] = {
    "job_id": ("the job's id", [_JOB]),
    "worker_id": ("the worker's id", ["wrk_0197f3c2a9b47c1e8d20f6b1c4e5a703"]),
    "ref": ("a checkpoint: its id, `best`, `latest`, `epoch-N` or `step-N`", ["best", "latest", "epoch-3"]),
    "path": ("a file's path, as the checkpoint lists it", ["model.safetensors"]),
}

SPEC_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A job spec",
        "content": {
            "application/json": {
                "schema": {"$ref": _SCHEMA.format(model="JobSpec-Sent")},
                "examples": {
                    "digits": {
                        "summary": "The small real set of digits that needs no download",
                        "value": {"trainer": "image-classification", "config": {"data": {"source": "digits"}}},
                    }
                },
            }
        },
    }
}
"""For the `openapi_extra` of a route that reads a spec."""


def problems(*kinds: type[TorchyardError]) -> dict[int | str, dict[str, Any]]:
    """For a route's `responses`: the errors that `completed` does not see in its parameters."""
    return {kind.status: {} for kind in kinds}


def headers(*names: str) -> dict[str, Any]:
    """For the `headers` of one of a route's `responses`."""
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def completed(document: dict[str, Any]) -> dict[str, Any]:
    """`document` with all that its routes only hint at."""
    document["openapi"] = _VERSION
    document["servers"] = [{"url": "/", "description": "This service"}]
    for item in document["paths"].values():
        for method, operation in item.items():
            _complete(operation, has_content=method != "head")
    components: dict[str, Any] = document["components"]
    components["schemas"] = _schemas(components["schemas"])
    components["headers"] = {name: _header(**header) for name, header in _HEADERS.items()}
    components["examples"] = {kind.code: _example(kind, detail) for kind, detail in _PROBLEMS.items()}
    components["responses"] = {_name(status): _response(status) for status in sorted(kind.status for kind in _PROBLEMS)}
    return document


def _complete(operation: dict[str, Any], *, has_content: bool) -> None:
    parameters: list[dict[str, Any]] = operation.get("parameters", [])
    responses: dict[str, dict[str, Any]] = operation["responses"]
    responses.pop("422", None)  # the framework's own shape of an error, which is never sent
    for status in _expected(operation, parameters):
        responses.setdefault(str(status), {})
    for status, response in responses.items():
        if int(status) >= 400 and "content" not in response:
            responses[status] = {"$ref": f"#/components/responses/{_name(int(status))}"}
            continue
        response["headers"] = {**headers("X-Request-ID"), **response.get("headers", {})}
        if not has_content:
            response.pop("content", None)
    operation["responses"] = dict(sorted(responses.items()))
    for parameter in parameters:
        if parameter["in"] == "path":
            parameter["description"], parameter["schema"]["examples"] = _PATH_PARAMETERS[parameter["name"]]


def _expected(operation: dict[str, Any], parameters: list[dict[str, Any]]) -> Iterable[int]:
    """The statuses of the errors that follow from what an operation reads."""
    if any(parameter["in"] == "path" for parameter in parameters):
        yield NotFound.status
    if "requestBody" in operation:
        yield TooLarge.status
    if "requestBody" in operation or any(parameter["in"] != "path" for parameter in parameters):
        yield InvalidRequest.status


def _schemas(schemas: dict[str, Any]) -> dict[str, Any]:
    spec = SPEC.json_schema(mode="validation", ref_template=_SENT)
    problem = Problem.model_json_schema(mode="serialization", ref_template=_SCHEMA)
    unused = ("HTTPValidationError", "ValidationError")
    return {
        **{name: schema for name, schema in schemas.items() if name not in unused},
        **{f"{name}-Sent": schema for name, schema in spec.pop("$defs").items()},
        "JobSpec-Sent": spec,
        **problem.pop("$defs"),
        "Problem": problem,
    }


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
        "content": {PROBLEM_TYPE: {"schema": {"$ref": _SCHEMA.format(model="Problem")}, "examples": examples}},
    }
