"""Models: adds, lists, shares and removes them, and sends their files."""

import re
from typing import Annotated, Any, cast

from fastapi import Depends, Query, Request
from starlette.responses import Response

from api.auth.callers import FileReader, JobReader, JobWriter
from api.openapi.completion import DOWNLOAD_FILE, DOWNLOAD_HEAD, headers, problems
from api.openapi.components import JOB
from api.openapi.routers import guarded
from api.parameters.bodies import json_body
from api.parameters.paging import AfterModel, AfterNumber, Limit, model_after, number_after, page
from api.parameters.reads import in_turns
from api.routes.checkpoints import folder_view
from api.services import ServicesDep
from api.transfers.blobs import Blob, send_blob
from store.models import models
from store.models.facts import ModelFacts, ModelFilter, ModelVersionFacts, NewVersion
from torchyard.contract.errors import Conflict, NotFound, QuotaExceeded, Unavailable
from torchyard.contract.files.paths import MOST_PATH_BYTES
from torchyard.contract.models.names import MODEL_NAME
from torchyard.contract.models.requests import ModelPatch, NewModelVersion
from torchyard.contract.models.views import ModelVersionSummary, ModelVersionView, ModelView
from torchyard.contract.team.requests import USER_NAME
from torchyard.contract.team.roles import Visibility
from torchyard.contract.wire.schema import NO_NUL
from torchyard.contract.wire.text import storable
from torchyard.contract.wire.view import Page

router = guarded("models", Unavailable)

NewVersionBody = Annotated[
    NewModelVersion, json_body(NewModelVersion, example={"name": "digits", "from": f"{JOB}/best"})
]
ModelPatchBody = Annotated[ModelPatch, json_body(ModelPatch, example={"visibility": "team"})]
Text = Annotated[str | None, Query(max_length=100, pattern=NO_NUL)]
File = Annotated[
    str | None,
    Query(max_length=MOST_PATH_BYTES, description="path of the file, as listed; default: `state.pt`"),
]

_ADDED: dict[int | str, dict[str, Any]] = {
    200: {"model": ModelVersionView, "description": "The newest version already has this checkpoint"},
    201: {"model": ModelVersionView, "headers": headers("Location")},
    **problems(Conflict, QuotaExceeded, NotFound),
}


async def _model(owner: str, name: str) -> tuple[str, str]:
    """Raises NotFound for what is no model's name."""
    if re.fullmatch(USER_NAME, owner) is None or re.fullmatch(MODEL_NAME, name) is None:
        raise NotFound(f"there is no model {owner[:100]}/{name[:100]}")
    return owner, name


async def _version(model: Annotated[tuple[str, str], Depends(_model)], version: str) -> int:
    """Raises NotFound for what is no version's number."""
    if re.fullmatch("[1-9][0-9]{0,8}", version) is None:
        raise NotFound(f"model {'/'.join(model)} has no version {version[:100]!r}")
    return int(version)


async def _version_or_latest(model: Annotated[tuple[str, str], Depends(_model)], version: str) -> int | None:
    return None if version == "latest" else await _version(model, version)


Name = Annotated[tuple[str, str], Depends(_model)]
"""A route's parameter: the owner and the name of a model."""
Number = Annotated[int, Depends(_version)]
NumberOrLatest = Annotated[int | None, Depends(_version_or_latest)]
"""None: `latest`, which is the newest version."""


@router.post("/models", status_code=201, responses=_ADDED)
def add_model_version(services: ServicesDep, caller: JobWriter, sent: NewVersionBody) -> Response:
    """Saves a checkpoint as the next version of your model. The first version creates the model.

    You must be able to read the checkpoint's job. A version never changes, and stays when its checkpoint or job is
    deleted. If the newest version already has this checkpoint, the answer is that version (200), so repeating is safe.
    """
    job_id, _, ref = sent.source.partition("/")
    wanted = NewVersion(sent.name, job_id, ref, sent.visibility, services.settings.visibility, caller)
    with services.store.write("model") as session:
        version, is_new = models.add_version(session, wanted)
    location = {"Location": f"/v1/models/{version.owner}/{version.name}/versions/{version.version}"} if is_new else {}
    body = _version_view(version).model_dump_json()
    return Response(body, status_code=201 if is_new else 200, headers=location, media_type="application/json")


@router.get("/models")
@in_turns
def list_models(
    *,
    services: ServicesDep,
    caller: JobReader,
    owner: Annotated[Text, Query(description="only this user")] = None,
    name: Annotated[Text, Query(description="only this exact name")] = None,
    job: Annotated[Text, Query(description="only models with a version from the job with this id")] = None,
    limit: Limit = 100,
    after: AfterModel = None,
) -> Page[ModelView]:
    """Lists the models that you may read, by owner and name, each with its newest version."""
    where = ModelFilter(owner, name, job)
    with services.store.read() as session:
        listed = models.list_models(session, where, caller=caller, limit=limit, after=model_after(after))
    return page(ModelView, listed, _model_view, cursor=lambda item: f"{item.owner}/{item.name}")


@router.get("/models/{owner}/{name}")
@in_turns
def get_model(services: ServicesDep, caller: JobReader, model: Name) -> ModelView:
    """Returns a model and its newest version."""
    with services.store.read() as session:
        return _model_view(models.find(session, *model, caller=caller))


@router.patch("/models/{owner}/{name}")
def change_model(services: ServicesDep, caller: JobWriter, model: Name, patch: ModelPatchBody) -> ModelView:
    """Changes the visibility of a model. Only its owner and administrators may."""
    with services.store.write("model") as session:
        changed = models.share(session, *model, patch.visibility, caller=caller)
    return _model_view(changed)


@router.delete("/models/{owner}/{name}", status_code=204)
def delete_model(services: ServicesDep, caller: JobWriter, model: Name) -> None:
    """Deletes a model and all its versions. Only its owner and administrators may. Version numbers are never reused."""
    with services.store.write("model") as session:
        models.remove(session, *model, caller=caller)


@router.get("/models/{owner}/{name}/versions")
@in_turns
def list_model_versions(
    services: ServicesDep, caller: JobReader, model: Name, limit: Limit = 100, after: AfterNumber = None
) -> Page[ModelVersionSummary]:
    """Lists the versions of a model, newest first, without model cards."""
    before = number_after(after) if after is not None else None
    with services.store.read() as session:
        versions = models.list_versions(session, *model, caller=caller, limit=limit, before=before)
    return page(ModelVersionSummary, versions, _version_summary, cursor=lambda item: str(item.version))


@router.get("/models/{owner}/{name}/versions/{version}")
@in_turns
def get_model_version(
    services: ServicesDep, caller: JobReader, model: Name, number: NumberOrLatest
) -> ModelVersionView:
    """Returns a version of a model and its model card."""
    with services.store.read() as session:
        return _version_view(models.find_version(session, *model, number, caller=caller))


@router.delete("/models/{owner}/{name}/versions/{version}", status_code=204)
def delete_model_version(services: ServicesDep, caller: JobWriter, model: Name, number: Number) -> None:
    """Deletes a version. Only the model's owner and administrators may. Deleting the last version deletes the model."""
    with services.store.write("model") as session:
        models.remove(session, *model, number, caller=caller)


@router.head("/models/{owner}/{name}/versions/{version}/download", **DOWNLOAD_HEAD)
@router.get("/models/{owner}/{name}/versions/{version}/download", **DOWNLOAD_FILE)
@in_turns
def download_model(
    *,
    request: Request,
    services: ServicesDep,
    caller: FileReader,
    model: Name,
    number: NumberOrLatest,
    file: File = None,
) -> Response:
    """Downloads a file of a version. The `ETag` is its sha256. A browser shows a `.png` and saves other files."""
    with services.store.read() as session:
        version = models.find_version(session, *model, number, caller=caller)
    entry = version.main_file if file is None else version.file(storable(file))
    blob = Blob.of(entry, f"{version.name}-v{version.version}", files=version.files, path=file)
    return send_blob(request, services, blob, caller)


def _model_view(facts: ModelFacts) -> ModelView:
    return ModelView(
        owner=facts.owner,
        name=facts.name,
        visibility=cast("Visibility", facts.visibility),
        versions=facts.versions,
        stored_bytes=facts.size,
        newest=_version_summary(facts.newest),
    )


def _version_summary(facts: ModelVersionFacts) -> ModelVersionSummary:
    return ModelVersionSummary.model_validate(_version_values(facts))


def _version_view(facts: ModelVersionFacts) -> ModelVersionView:
    return ModelVersionView.model_validate(_version_values(facts) | {"card": facts.card})


def _version_values(facts: ModelVersionFacts) -> dict[str, Any]:
    sent = facts.main_file
    return {
        "owner": facts.owner,
        "name": facts.name,
        "version": facts.version,
        "trainer": facts.trainer,
        "job_id": facts.job_id if facts.shows_job else None,
        "checkpoint_id": facts.checkpoint_id if facts.shows_job else None,
        "epoch": facts.epoch,
        "step": facts.step,
        "metrics": facts.metrics,
        "files": facts.files,
        "files_omitted": facts.files_omitted,
        "folder": folder_view(sent),
        "size": sent["size"],
        "sha256": sent["sha256"],
        "stored_bytes": facts.size,
        "created_at": facts.created_at,
    }
