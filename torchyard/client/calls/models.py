"""Calls about models."""

import json
from urllib.parse import quote

from torchyard.client.calls.call import JSON, LARGE_PAGE, Call, given, segment
from torchyard.contract.models.views import ModelVersionSummary, ModelVersionView, ModelView
from torchyard.contract.team.roles import Visibility
from torchyard.contract.wire.view import Page, View


def models(*, owner: str | None, name: str | None) -> Call[Page[ModelView]]:
    return Call(Page[ModelView], "GET", "/v1/models", {"owner": owner, "name": name, "limit": LARGE_PAGE})


def model(owner: str, name: str) -> Call[ModelView]:
    return Call(ModelView, "GET", _path(owner, name))


def add(name: str, job_id: str, ref: str, *, visibility: Visibility | None) -> Call[ModelVersionView]:
    content = json.dumps(given({"name": name, "from": f"{job_id}/{ref}", "visibility": visibility}))
    return Call(ModelVersionView, "POST", "/v1/models", content=content, headers=JSON)


def share(owner: str, name: str, *, visibility: Visibility) -> Call[ModelView]:
    return Call(ModelView, "PATCH", _path(owner, name), content=json.dumps({"visibility": visibility}), headers=JSON)


def versions(owner: str, name: str) -> Call[Page[ModelVersionSummary]]:
    return Call(Page[ModelVersionSummary], "GET", f"{_path(owner, name)}/versions", {"limit": LARGE_PAGE})


def version(owner: str, name: str, number: int | None) -> Call[ModelVersionView]:
    return Call(ModelVersionView, "GET", _version_path(owner, name, number))


def remove(owner: str, name: str, number: int | None) -> Call[View]:
    """Returns the call that removes a version, or without a number the model with all its versions."""
    path = _path(owner, name) if number is None else _version_path(owner, name, number)
    return Call(View, "DELETE", path, repeatable=False)


def file_path(owner: str, name: str, number: int, file: str | None) -> str:
    """Returns the path of a version's file; without a name, of its `state.pt`."""
    path = f"{_version_path(owner, name, number)}/download"
    return path if file is None else f"{path}?file={quote(file, safe='')}"


def _version_path(owner: str, name: str, number: int | None) -> str:
    return f"{_path(owner, name)}/versions/{'latest' if number is None else number}"


def _path(owner: str, name: str) -> str:
    return f"/v1/models/{segment(owner)}/{segment(name)}"
