"""Users, their tokens and sessions, and the audit."""

import re
from typing import Annotated

from fastapi import Query
from starlette.concurrency import run_in_threadpool

from api.access.auth import Auditor, Principal, TokenOwner, UserManager
from api.openapi.completion import problems
from api.openapi.routers import guarded
from api.parameters.bodies import json_body
from api.parameters.paging import AfterName, AfterNumber, AfterToken, Limit, id_after, number_after, page
from api.parameters.reads import Parts, WriterDep, in_turns
from api.present import team as present
from api.present.times import microseconds
from api.services import Services, ServicesDep
from store.ids import is_id
from store.team import reads as queries
from store.team import writes as team
from store.team.callers import BOOTSTRAP, Caller
from store.team.facts import AuditFilter, digest_of
from store.team.writes import UserChange
from torchyard.contract.errors import Conflict, Forbidden, InvalidCursor, NotFound, Unavailable
from torchyard.contract.filters import NO_NUL, Instant
from torchyard.contract.requests import USER_NAME, NewToken, NewUser, UserPatch
from torchyard.contract.team import Scope
from torchyard.contract.views.base import Page
from torchyard.contract.views.team import AuditView, BrowserSessionView, NewTokenView, TokenView, UserView

router = guarded("team", Forbidden, Unavailable)

Text = Annotated[str, Query(max_length=300, pattern=NO_NUL)]
NewUserBody = Annotated[NewUser, json_body(NewUser, example={"name": "alice"})]
UserPatchBody = Annotated[UserPatch, json_body(UserPatch, example={"disabled": True})]
NewTokenBody = Annotated[NewToken, json_body(NewToken, example={"name": "laptop"})]


@router.get("/users")
@in_turns
def list_users(
    services: ServicesDep, caller: UserManager, limit: Limit = 100, after: AfterName = None
) -> Page[UserView]:
    """Lists users by name."""
    if after is not None and re.fullmatch(USER_NAME, after) is None:
        raise InvalidCursor(f"{after!r} is not a `next` value of this list")
    found = queries.list_users(services.store, limit=limit, after=after)
    return page(UserView, found, present.user, cursor=lambda user: user.name)


@router.post("/users", status_code=201, responses=problems(Conflict))
def add_user(services: ServicesDep, caller: UserManager, new: NewUserBody) -> UserView:
    """Adds a user. They need a token to do anything."""
    return present.user(team.add_user(services.store, new.name, new.role, caller=caller))


@router.patch("/users/{name}", responses=problems(Conflict))
async def change_user(
    services: ServicesDep, writer: WriterDep, caller: UserManager, name: str, patch: UserPatchBody
) -> UserView:
    """Changes the role of a user, or disables or enables them.

    A disabled user's tokens and open streams end at once; their jobs are kept, or cancelled with `jobs: cancel`, one
    after another: repeat it if the connection ends before the answer.
    """
    change = UserChange(role=patch.role, disabled=patch.disabled)
    changed = await run_in_threadpool(team.change_user, services.store, name, change, caller=caller)
    if patch.disabled and patch.jobs == "cancel":
        await writer.run(_cancelling(services, name, caller), caller)
    return present.user(changed)


@router.get("/tokens")
@in_turns
def list_tokens(
    services: ServicesDep,
    caller: TokenOwner,
    user: Annotated[Text | None, Query(description="whose; only an administrator may name another user")] = None,
    limit: Limit = 100,
    after: AfterToken = None,
) -> Page[TokenView]:
    """Lists tokens, newest first, also expired and revoked ones: one's own, or those of `user`."""
    before = id_after(after, "tok")
    owner = _owner(caller, user)
    found = queries.list_tokens(services.store, owner, limit=limit, before=before)
    return page(TokenView, found, present.token, cursor=lambda token: token.id)


@router.post("/tokens", status_code=201)
def make_token(services: ServicesDep, caller: TokenOwner, new: NewTokenBody) -> NewTokenView:
    """Makes a token. Its text is in this answer and nowhere else.

    It has no more scopes than the token that is used to make it. One of the same user also ends with that: when it
    expires or is revoked.
    """
    owner = _owner(caller, new.user)
    scopes = caller.scopes if new.scopes is None else frozenset(new.scopes)
    if not scopes <= caller.scopes:
        beyond = ", ".join(sorted(scopes - caller.scopes))
        raise Forbidden(f"your role or your token does not have {beyond}: a new token cannot have more than you")
    made_by = caller.token_id if owner == caller.name else None
    wanted = team.NewToken(user=owner, name=new.name, scopes=scopes, made_by=made_by, lifetime=new.lifetime)
    made, text = team.make_token(services.store, wanted, caller=caller)
    return NewTokenView(**present.token(made).model_dump(), token=text)


@router.delete("/tokens/{token_id}", status_code=204)
def revoke_token(services: ServicesDep, caller: TokenOwner, token_id: str) -> None:
    """Revokes a token at once, and all that were made with it. Their open streams and browser sessions end."""
    if not is_id(token_id, "tok"):
        raise NotFound(f"there is no token {token_id[:100]!r}")
    user = None if Scope.USERS in caller.scopes else caller.name
    team.revoke_token(services.store, token_id, user=user, caller=caller)


@router.get("/sessions")
@in_turns
def list_sessions(services: ServicesDep, caller: TokenOwner) -> Page[BrowserSessionView]:
    """Lists the browsers in which one is signed in, the last used first."""
    found = queries.list_sessions(services.store, caller.name, credential=_credential(services, caller))
    return Page[BrowserSessionView](data=[present.browser_session(each, current=caller.session) for each in found])


@router.delete("/sessions/{session_id}", status_code=204)
def end_session(services: ServicesDep, caller: TokenOwner, session_id: str) -> None:
    """Signs one's browser out. Its open streams end, and it shows the login."""
    credential = _credential(services, caller)
    team.end_session(services.store, session_id, user=caller.name, credential=credential, caller=caller)


@router.get("/audit")
@in_turns
def list_audit(
    *,
    services: ServicesDep,
    caller: Auditor,
    who: Annotated[Text | None, Query(description="only this user's")] = None,
    action: Annotated[
        Text | None, Query(description="only this action, such as `job.cancel`; `job` is all of its kind")
    ] = None,
    object: Annotated[Text | None, Query(description="only about this object, such as a job's id")] = None,
    outcome: Annotated[Text | None, Query(description="only `ok`, or the code of an error")] = None,
    since: Annotated[Instant | None, Query(alias="from", description="not before this time (RFC 3339)")] = None,
    until: Annotated[Instant | None, Query(alias="to", description="not after this time (RFC 3339)")] = None,
    limit: Limit = 100,
    after: AfterNumber = None,
) -> Page[AuditView]:
    """Lists what was done, newest first.

    A request looks at 100,000 entries at most: where a filter fits few, a page may be empty and have a `next`.
    """
    before = number_after(after) if after is not None else None
    begins, ends = (None if each is None else microseconds(each) for each in (since, until))
    where = AuditFilter(who, action, object, outcome, begins, ends)
    found = queries.list_audit(services.store, where, limit=limit, before=before)
    cursor = None if found.next is None else str(found.next)
    data = [*map(present.audit_entry, found.entries)]
    return Page[AuditView](data=data, has_more=cursor is not None, next=cursor)


def _credential(services: Services, caller: Principal) -> str | None:
    """Returns what the sessions of the bootstrap administrator's token have as their credential, if it is theirs."""
    return digest_of(services.access.token) if caller.name == BOOTSTRAP else None


def _owner(caller: Principal, user: str | None) -> str:
    """Returns whose tokens are meant. Raises Forbidden for another user's, unless the caller manages users."""
    if user is None or user == caller.name:
        return caller.name
    if Scope.USERS not in caller.scopes:
        raise Forbidden("only an administrator may see or make the tokens of another user")
    if user == BOOTSTRAP:
        raise Forbidden(f"only {BOOTSTRAP} may see or make the tokens of {BOOTSTRAP}")
    return user


def _cancelling(services: Services, owner: str, caller: Caller) -> Parts[None]:
    for _ in team.cancel_jobs(services.store, owner, caller=caller):
        yield
