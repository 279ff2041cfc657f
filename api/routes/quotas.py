"""Quotas of users and of roles."""

from typing import Annotated

from fastapi import Query

from api.auth.callers import Account, UserManager
from api.openapi.routers import guarded
from api.parameters.bodies import json_body
from api.parameters.reads import in_turns
from api.services import ServicesDep
from store.team import quotas
from torchyard.contract.errors import Forbidden, Unavailable
from torchyard.contract.team.requests import QuotaPatch
from torchyard.contract.team.roles import Resource, Role, Scope
from torchyard.contract.team.views import QuotaView, UserQuotaView
from torchyard.contract.wire.view import Page

router = guarded("team", Forbidden, Unavailable)

QuotaBody = Annotated[QuotaPatch, json_body(QuotaPatch, example={"devices": 4, "queued": 100})]
Resources = Annotated[list[Resource] | None, Query(max_length=20, description="only these limits; default: all")]


@router.get("/quotas")
@in_turns
def list_quotas(services: ServicesDep, caller: UserManager) -> Page[QuotaView]:
    """Lists the quotas of roles and users. A user's own limit replaces the limit of the role."""
    with services.store.read() as session:
        return Page[QuotaView](data=quotas.list_all(session))


@router.get("/quotas/users/{name}")
@in_turns
def get_quota(services: ServicesDep, caller: Account, name: str) -> UserQuotaView:
    """Returns the limits and the current use of a user. Only an administrator may name another user."""
    if name != caller.name and Scope.USERS not in caller.scopes:
        raise Forbidden("only an administrator may see the quota of another user")
    with services.store.read() as session:
        return quotas.find_usage(session, name)


@router.put("/quotas/users/{name}", status_code=204)
def set_user_quota(services: ServicesDep, caller: UserManager, name: str, patch: QuotaBody) -> None:
    """Sets limits of a user. Omitted limits stay; null is unlimited, even if the role has a limit."""
    with services.store.write("team") as session:
        quotas.set_limits(session, "user", name, patch.limits, caller=caller)


@router.put("/quotas/roles/{role}", status_code=204)
def set_role_quota(services: ServicesDep, caller: UserManager, role: Role, patch: QuotaBody) -> None:
    """Sets the limits of each user with this role. Omitted limits stay; null is unlimited."""
    with services.store.write("team") as session:
        quotas.set_limits(session, "role", role, patch.limits, caller=caller)


@router.delete("/quotas/users/{name}", status_code=204)
def clear_user_quota(services: ServicesDep, caller: UserManager, name: str, resource: Resources = None) -> None:
    """Removes limits of a user. The limits of the role apply again."""
    with services.store.write("team") as session:
        quotas.clear(session, "user", name, resource or list(Resource), caller=caller)


@router.delete("/quotas/roles/{role}", status_code=204)
def clear_role_quota(services: ServicesDep, caller: UserManager, role: Role, resource: Resources = None) -> None:
    """Removes limits of a role."""
    with services.store.write("team") as session:
        quotas.clear(session, "role", role, resource or list(Resource), caller=caller)
