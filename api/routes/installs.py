"""Serves the wheels of this service and their lock to other machines. Nobody is asked for a token."""

from typing import Any

from fastapi import Response

from api.installs.wheels import InstallFile
from api.openapi.completion import problems
from api.openapi.routers import unguarded
from api.services import ServicesDep
from torchyard.contract.errors import NotFound
from torchyard.contract.installs import InstallFileView, InstallView

router = unguarded("service")

_FOR_EVER = "public, max-age=31536000, immutable"
_WHEEL, _TEXT = "application/octet-stream", "text/plain; charset=utf-8"
_FILE: dict[int | str, dict[str, Any]] = {
    200: {"content": {_WHEEL: {"schema": {"type": "string", "format": "binary"}}}, "description": "The file"},
    **problems(NotFound),
}


@router.get("/install")
def list_install_files(services: ServicesDep) -> InstallView:
    """Lists the files that install this exact version on another machine, with their sha256."""
    made = services.installs.get()
    return InstallView(
        version=made.version,
        first=_view(made.first),
        client=_view(made.client),
        server=_view(made.server),
        lock=_view(made.lock),
    )


@router.get("/install/{sha256}/{name}", response_class=Response, responses=_FILE)
def get_install_file(services: ServicesDep, sha256: str, name: str) -> Response:
    """Downloads one of these files. Its address has its sha256, so a cache may keep it forever."""
    file = services.installs.get().find(sha256, name)
    if file is None:
        raise NotFound("there is no such file: the service has another version since")
    kind = _WHEEL if name.endswith(".whl") else _TEXT
    return Response(file.content, media_type=kind, headers={"Cache-Control": _FOR_EVER})


def _view(file: InstallFile) -> InstallFileView:
    return InstallFileView(name=file.name, sha256=file.sha256, size=len(file.content))
