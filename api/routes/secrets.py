"""Secrets of the caller. A value can be set, and never read."""

import re
from typing import Annotated

from api.auth.callers import SecretOwner, UserManager
from api.openapi.completion import problems
from api.openapi.routers import guarded
from api.parameters.bodies import json_body
from api.services import ServicesDep
from store.team import secrets
from torchyard.contract.bounds import VARIABLE_NAME
from torchyard.contract.errors import Conflict, FieldError, InvalidRequest, Unavailable
from torchyard.contract.team.requests import SecretValue
from torchyard.contract.team.views import RotationView, SecretView
from torchyard.contract.wire.view import Page

router = guarded("team", Unavailable)

SecretBody = Annotated[SecretValue, json_body(SecretValue, example={"value": "…"})]


@router.get("/secrets")
def list_secrets(services: ServicesDep, caller: SecretOwner) -> Page[SecretView]:
    """Lists the names of your secrets. No route returns a value."""
    with services.store.read() as session:
        listed = secrets.list_owned(session, caller.name)
    return Page[SecretView](data=[*listed])


@router.put("/secrets/{name}", responses=problems(Conflict))
def set_secret(services: ServicesDep, caller: SecretOwner, name: str, secret: SecretBody) -> SecretView:
    """Sets a secret. Jobs that start later get the new value."""
    if re.fullmatch(VARIABLE_NAME, name) is None:
        wrong = FieldError("name", "must be the name of a variable: letters, digits and `_`, at most 100")
        raise InvalidRequest("the request is not valid", errors=(wrong,))
    with services.store.write("team") as session:
        return secrets.put(session, services.store.secret_keys, name, secret.value, caller=caller)


@router.delete("/secrets/{name}", status_code=204)
def delete_secret(services: ServicesDep, caller: SecretOwner, name: str) -> None:
    """Deletes a secret. A job that names it and starts later fails."""
    with services.store.write("team") as session:
        secrets.remove(session, name, caller=caller)


@router.post("/secrets/rotate")
def rotate_secrets(services: ServicesDep, caller: UserManager) -> RotationView:
    """Encrypts all secrets again, with the first key of TORCHYARD_SECRET_KEY or of its file."""
    with services.store.write("team") as session:
        count = secrets.rotate(session, services.store.secret_keys, caller=caller)
    return RotationView(encrypted=count)
