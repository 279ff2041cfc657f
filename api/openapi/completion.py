"""Completes the OpenAPI document with what the framework cannot derive from the routes."""

from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any, get_args

from starlette.responses import Response
from starlette.routing import BaseRoute

from api.openapi import bodies, components, fields
from api.openapi.components import SCHEMA, headers
from torchyard.contract.errors import (
    FileTooLarge,
    InvalidRequest,
    NotFound,
    NotText,
    RangeNotSatisfiable,
    TooLarge,
    TorchyardError,
    UrlTooLong,
)
from torchyard.contract.media.kinds import MEDIA_TYPES
from torchyard.contract.telemetry.views import EventKind

DESCRIPTION = """\
Send `Authorization: Bearer TOKEN` with every request below `/v1` and with `/metrics`.

An error is an RFC 9457 problem (`application/problem+json`) with a stable `code`. Each operation lists its errors.
Every path can also answer 405 (with `Allow`) for another method, 400, 408, 421 or 431 for invalid HTTP, and 429 or 503
for too many connections.

Lists have pages: send the `next` of a page as `after` to get the next page. Every answer has an `X-Request-ID`. The
service logs the request under this id.
"""

TAGS = [
    {"name": "jobs", "description": "Submit, watch, change, cancel and remove training jobs."},
    {"name": "schedules", "description": "Submit a job spec at the times of a cron expression."},
    {"name": "sweeps", "description": "Run a job spec with many values and rank the trials."},
    {"name": "telemetry", "description": "Read metrics and logs, or stream everything that a job stores."},
    {"name": "reaches", "description": "Open a shell, a program or a port inside a running job."},
    {"name": "checkpoints", "description": "List and download the checkpoints of a job."},
    {"name": "models", "description": "Keep checkpoints as versions of a named model."},
    {"name": "artifacts", "description": "List and download the other files of a job."},
    {"name": "media", "description": "Read the pictures, tables, texts and histograms that a job logged."},
    {"name": "code", "description": "Read the code and the packages of a job."},
    {"name": "bundles", "description": "Upload code and data for jobs. A bundle is one tar, named by its sha256."},
    {"name": "cluster", "description": "List trainers, workers, devices, the queue and the usage."},
    {"name": "team", "description": "Manage users, tokens, browser sessions, quotas, secrets and the audit log."},
    {"name": "notifications", "description": "Manage notification channels and read their messages."},
    {"name": "service", "description": "Check the service: health, readiness and its own metrics."},
]

_VERSION = "3.2.0"  # the first version with `itemSchema` for event streams

_PATH_PARAMETERS: dict[str, tuple[str, list[str]]] = {
    "job_id": ("id of the job", [components.JOB]),
    "reach_id": ("id of the reach", ["rch_0197f3c2a9b47c1e8d20f6b1c4e5a703"]),
    "schedule_id": ("id of the schedule", ["sch_0197f3c2a9b47c1e8d20f6b1c4e5a703"]),
    "sweep_id": ("id of the sweep", ["swp_0197f3c2a9b47c1e8d20f6b1c4e5a703"]),
    "number": ("number of the trial, from 0", ["3"]),
    "owner": ("name of the model's owner", ["alice"]),
    "version": ("number of the version; `latest` is the newest, and is refused for a deletion", ["3"]),
    "role": ("the role", ["member"]),
    "name": ("name of the object", ["alice"]),
    "token_id": ("id of the token", ["tok_0197f3c2a9b47c1e8d20f6b1c4e5a703"]),
    "session_id": ("id of the session", ["ses_0197f3c2a9b47c1e8d20f6b1c4e5a703"]),
    "target_id": ("id of the channel", ["ntf_0197f3c2a9b47c1e8d20f6b1c4e5a703"]),
    "worker_id": ("id of the worker", ["wrk_0197f3c2a9b47c1e8d20f6b1c4e5a703"]),
    "sha256": ("sha256 of the tar", ["7" * 64]),
    "ref": ("the checkpoint: its id, `best`, `latest`, `epoch-N` or `step-N`", ["best"]),
    "media_id": ("id of the item", ["med_0197f3c2a9b47c1e8d20f6b1c4e5a703"]),
    "part": ("which picture of the item: `image`, `truth` or `predicted`", ["image"]),
    "path": ("path of the file, as listed", ["model.safetensors"]),
}


def problems(*kinds: type[TorchyardError]) -> dict[int | str, dict[str, Any]]:
    """Returns a route's `responses` for the errors that `completed` cannot derive from its parameters."""
    return {kind.status: {} for kind in kinds}


CONDITIONAL: dict[str, Any] = {"parameters": [components.parameter("If-None-Match")]}
"""The `openapi_extra` of a route whose answers have an `ETag`."""

_FILE_HEADERS = headers("ETag", "Repr-Digest")
_NAMED = headers("Content-Disposition", "Accept-Ranges")
_BYTES = {"schema": {"type": "string", "format": "binary"}}
_WHOLE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The whole file",
        "headers": _FILE_HEADERS | _NAMED,
        "content": {"application/octet-stream": _BYTES},
    },
    304: {"description": "The file has not changed", "headers": _FILE_HEADERS},
}
_PART: dict[int | str, dict[str, Any]] = {
    206: {
        "description": "The bytes that `Range` selects",
        "headers": _FILE_HEADERS | _NAMED | headers("Content-Range"),
        "content": {"application/octet-stream": _BYTES, "multipart/byteranges": _BYTES},
    }
}


def _showing(download: dict[str, Any], *types: str) -> dict[str, Any]:
    responses: dict[int | str, dict[str, Any]] = {**download["responses"]}
    for status in responses.keys() & {200, 206}:
        content = responses[status]["content"] | dict.fromkeys(types, _BYTES)
        responses[status] = responses[status] | {"content": content}
    return {**download, "responses": responses}


DOWNLOAD: dict[str, Any] = {
    "status_code": 200,
    "response_class": Response,
    "responses": _WHOLE | _PART | problems(RangeNotSatisfiable),
    "openapi_extra": {"parameters": [components.parameter(name) for name in ("Range", "If-Range", "If-None-Match")]},
}
"""The arguments of the decorator of a route that sends a file."""
DOWNLOAD_FILE = _showing(DOWNLOAD, "image/png")
"""The same for a file that may be a picture, which a browser shows."""
DOWNLOAD_HEAD: dict[str, Any] = DOWNLOAD | {"responses": _WHOLE, "openapi_extra": CONDITIONAL}
"""The same for `HEAD`, which ignores ranges."""
DOWNLOAD_PICTURE = _showing(DOWNLOAD, *MEDIA_TYPES)
"""The same for a picture."""


def _event(kinds: list[str], schema: str, *, has_id: bool = True) -> dict[str, Any]:
    data = {"contentMediaType": "application/json", "contentSchema": {"$ref": SCHEMA.format(model=schema)}}
    properties = {"event": {"enum": kinds}, "data": {"type": "string", **data}}
    if has_id:
        properties = {"id": {"type": "string"}, **properties}
    return {"type": "object", "properties": properties, "required": list(properties)}


def _stream(description: str, *events: dict[str, Any]) -> dict[int | str, dict[str, Any]]:
    content = {"text/event-stream": {"itemSchema": {"oneOf": [*events]}}}
    return {200: {"description": description, "content": content}}


STREAM = _stream(
    "Events until the job or the connection ends",
    _event([*get_args(EventKind)], "EventView"),
    _event(["metric"], "MetricView"),
    _event(["log"], "LogLine"),
    _event(["live"], "LiveLine", has_id=False),
    _event(["end"], "EndView"),
)
"""The `responses` of the route that streams a job's events."""
JOBS_STREAM = _stream(
    "Events until the connection ends",
    _event(["ready"], "StreamCursor"),
    _event(["items"], "ItemsView"),
    _event(["live"], "LiveLine", has_id=False),
    _event(["job"], "JobSummary", has_id=False),
    _event(["jobs"], "ListedView", has_id=False),
    _event(["queue", "workers"], "ChangedView", has_id=False),
)
"""The `responses` of the route that streams the events of several jobs."""


LOG_FILE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The lines, in UTF-8",
        "headers": headers("Content-Disposition"),
        "content": {"text/plain": {"schema": {"type": "string"}}},
    }
}
"""The `responses` of the route that sends a log as a file."""
CSV_FILE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A page; with `format=csv`, a file",
        "content": {"text/csv": {"schema": {"type": "string"}}},
    }
}
"""The `responses` of a route that sends its list as a file where that is asked for."""
TEXT_FILE: dict[int | str, dict[str, Any]] = {
    200: {"description": "The text, in UTF-8", "content": {"text/plain": {"schema": {"type": "string"}}}},
    **problems(FileTooLarge, NotText),
}
"""The `responses` of the route that sends the text of a file."""


def completed(document: dict[str, Any], routes: Sequence[BaseRoute]) -> dict[str, Any]:
    """Returns `document` with its servers, bodies, error answers, headers and shared components."""
    declared = bodies.declared(routes)
    for (path, method), body in declared.items():
        body.add_to(document["paths"][path][method])
    document["openapi"] = _VERSION
    document["servers"] = [{"url": "/", "description": "This service"}]
    for item in document["paths"].values():
        for method, operation in item.items():
            _complete(operation, has_content=method != "head")
    sent = [schema for body in declared.values() for schema in body.schemas]
    document["components"] = components.completed(document["components"], sent)
    fields.describe(document["components"]["schemas"])
    return document


def _complete(operation: dict[str, Any], *, has_content: bool) -> None:
    operation["summary"] = operation["summary"].capitalize()
    kinds = [_described(parameter) for parameter in operation.get("parameters", [])]
    responses: dict[str, dict[str, Any]] = operation["responses"]
    responses.pop("422", None)  # the framework's own error schema, which is never sent
    for status in _expected(kinds, has_body="requestBody" in operation):
        responses.setdefault(str(status), {})
    for status, response in responses.items():
        if int(status) >= 400 and "content" not in response:
            responses[status] = components.problem(int(status))
            continue
        if response["description"] == "Successful Response":  # the framework's own
            response["description"] = HTTPStatus(int(status)).phrase
        response["headers"] = {**headers("X-Request-ID"), **response.get("headers", {})}
        for content in response.get("content", {}).values():
            if "itemSchema" in content:
                content.pop("schema", None)
        if not has_content:
            response.pop("content", None)
    operation["responses"] = dict(sorted(responses.items()))


def _described(parameter: dict[str, Any]) -> str | None:
    """Describes the parameter, and returns where it is sent; None if it is a reference."""
    if parameter.get("in") == "path":
        parameter["description"], parameter["schema"]["examples"] = _PATH_PARAMETERS[parameter["name"]]
    elif "anyOf" in (schema := parameter.get("schema", {})):
        # A parameter may be left out, but it cannot be null.
        options = [option for option in schema.pop("anyOf") if option != {"type": "null"}]
        schema |= options[0] if len(options) == 1 else {"anyOf": options}
    return parameter.get("in")


def _expected(kinds: list[str | None], *, has_body: bool) -> Iterable[int]:
    """Yields the statuses of the errors that an operation's parameters and body can cause."""
    if "path" in kinds:
        yield NotFound.status
    if {"path", "query"} & set(kinds):
        yield UrlTooLong.status
    if has_body:
        yield TooLarge.status
    if has_body or {"query", "header"} & set(kinds):
        yield InvalidRequest.status
