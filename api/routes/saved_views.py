"""Views: lists of jobs that users keep under a name."""

from typing import Annotated

from fastapi import Query

from api.auth.callers import Account, JobReader
from api.openapi.completion import problems
from api.openapi.routers import guarded
from api.parameters.bodies import json_body
from api.services import ServicesDep
from store.team import saved_views
from torchyard.contract.errors import Conflict, Unavailable
from torchyard.contract.jobs.filters import NO_NUL
from torchyard.contract.team.requests import NewView
from torchyard.contract.team.views import SavedViewView
from torchyard.contract.wire.view import Page

router = guarded("team", Unavailable)

ViewBody = Annotated[
    NewView, json_body(NewView, example={"name": "failed", "query": "state=failed", "visibility": "team"})
]
Name = Annotated[str, Query(max_length=100, pattern=NO_NUL, description="name of the view")]
Owner = Annotated[
    str | None,
    Query(max_length=100, pattern=NO_NUL, description="owner of the view; only an administrator may name another user"),
]


@router.get("/saved-views")
def list_saved_views(services: ServicesDep, caller: JobReader) -> Page[SavedViewView]:
    """Lists your saved views by name, then the team's; at most 500."""
    with services.store.read() as session:
        listed = saved_views.list_readable(session, caller=caller)
    return Page[SavedViewView](data=[*listed])


@router.put("/saved-views", responses=problems(Conflict))
def save_view(services: ServicesDep, caller: Account, view: ViewBody) -> SavedViewView:
    """Saves a view. It replaces your view of the same name."""
    with services.store.write("team") as session:
        return saved_views.put(session, view, caller=caller)


@router.delete("/saved-views", status_code=204)
def delete_saved_view(services: ServicesDep, caller: Account, name: Name, owner: Owner = None) -> None:
    """Deletes a view. Only its owner and administrators may."""
    with services.store.write("team") as session:
        saved_views.remove(session, owner or caller.name, name, caller=caller)
