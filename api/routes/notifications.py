"""Whom the service tells what happens: targets, and the messages to them."""

from typing import Annotated

from fastapi import Query

from api.auth.callers import JobReader, JobWriter, Principal
from api.openapi.completion import problems
from api.openapi.routers import guarded
from api.parameters.bodies import json_body
from api.parameters.paging import AfterMessage, Limit, id_after, page_of_views
from api.parameters.reads import in_turns
from api.services import ServicesDep
from store.notifications import facts, messages, targets
from torchyard.contract.errors import Conflict, Forbidden, Unavailable
from torchyard.contract.notifications.requests import NewTarget, TargetPatch
from torchyard.contract.notifications.views import MessageView, NewTargetView, TargetView
from torchyard.contract.team.roles import Scope
from torchyard.contract.wire.schema import NO_NUL
from torchyard.contract.wire.view import Page

router = guarded("notifications", Unavailable)

Text = Annotated[str, Query(max_length=300, pattern=NO_NUL)]
_EXAMPLE = {"name": "alerts", "kind": "webhook", "address": "https://example.com/torchyard", "on": ["job.failed"]}
NewTargetBody = Annotated[NewTarget, json_body(NewTarget, example=_EXAMPLE)]
TargetPatchBody = Annotated[TargetPatch, json_body(TargetPatch, example={"on": ["job.failed", "job.warning"]})]
User = Annotated[Text | None, Query(description="only this user's; only an administrator may name another user")]


@router.get("/notifications/targets", summary="List notification channels")
def list_targets(services: ServicesDep, caller: JobReader, user: User = None) -> Page[TargetView]:
    """Lists your notification channels by name, each with its waiting messages and last error."""
    owner = _owner(caller, user)
    with services.store.read() as session:
        return Page[TargetView](data=[*targets.list_targets(session, owner)])


@router.post(
    "/notifications/targets", summary="Add notification channel", status_code=201, responses=problems(Conflict)
)
def add_target(services: ServicesDep, caller: JobWriter, new: NewTargetBody) -> NewTargetView:
    """Adds a notification channel. Only this answer has the secret of a webhook.

    Only an administrator may add an email address or set `scope: all`.
    """
    if Scope.USERS not in caller.scopes and (new.kind == "mail" or new.scope == "all"):
        what = "enter an email address" if new.kind == "mail" else "be notified of the jobs of others"
        raise Forbidden(f"only an administrator may {what}")
    wanted = facts.NewTarget(
        owner=_owner(caller, new.user),
        name=new.name,
        kind=new.kind,
        address=new.address,
        kinds=new.on,
        jobs=new.jobs,
        scope=new.scope,
    )
    with services.store.write("team") as session:
        target, secret = targets.add(session, services.store.secret_keys, wanted, caller=caller)
    return NewTargetView(**target.model_dump(), secret=secret)


@router.get("/notifications/targets/{target_id}", summary="Get notification channel")
def get_target(services: ServicesDep, caller: JobReader, target_id: str) -> TargetView:
    """Returns a notification channel."""
    with services.store.read() as session:
        return targets.find(session, target_id, owner=_own(caller))


@router.patch("/notifications/targets/{target_id}", summary="Change notification channel")
def change_target(services: ServicesDep, caller: JobWriter, target_id: str, patch: TargetPatchBody) -> TargetView:
    """Changes the events and jobs that a notification channel receives."""
    change = facts.TargetChange(kinds=patch.on, jobs=patch.jobs)
    with services.store.write("team") as session:
        return targets.change(session, target_id, change, owner=_own(caller), caller=caller)


@router.delete("/notifications/targets/{target_id}", summary="Delete notification channel", status_code=204)
def remove_target(services: ServicesDep, caller: JobWriter, target_id: str) -> None:
    """Deletes a notification channel. Its waiting messages are dropped."""
    with services.store.write("team") as session:
        targets.remove(session, target_id, owner=_own(caller), caller=caller)


@router.post(
    "/notifications/targets/{target_id}/test",
    summary="Test notification channel",
    status_code=202,
    responses=problems(Conflict),
)
def try_target(services: ServicesDep, caller: JobWriter, target_id: str) -> MessageView:
    """Sends a test message to a notification channel. It counts towards the 60 messages an hour."""
    with services.store.write("team") as session:
        return targets.send_test(session, target_id, owner=_own(caller), caller=caller)


@router.get("/notifications/messages")
@in_turns
def list_messages(
    *,
    services: ServicesDep,
    caller: JobReader,
    target: Annotated[Text | None, Query(description="only messages to the target with this id")] = None,
    user: User = None,
    limit: Limit = 100,
    after: AfterMessage = None,
) -> Page[MessageView]:
    """Lists the messages of the last 7 days, newest first: waiting, delivered and failed."""
    before = id_after(after, "msg")
    owner = _owner(caller, user)
    with services.store.read() as session:
        page = messages.list_messages(session, owner, target_id=target, limit=limit, before=before)
    return page_of_views(MessageView, page, cursor=lambda message: message.id)


def _owner(caller: Principal, user: str | None) -> str:
    """Returns whose targets are meant. Raises Forbidden for another user's, unless the caller manages users."""
    if user is None or user == caller.name:
        return caller.name
    if Scope.USERS not in caller.scopes:
        raise Forbidden("only an administrator may see or add the notification channels of another user")
    return user


def _own(caller: Principal) -> str | None:
    """Returns whose targets the caller may reach by id; None: everybody's."""
    return None if Scope.USERS in caller.scopes else caller.name
