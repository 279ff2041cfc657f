"""Users, their tokens and sessions, and the audit."""

from contextlib import suppress
from datetime import timedelta
import re
from typing import Annotated

from fastapi import Query
from starlette.concurrency import run_in_threadpool

from api.auth.callers import Auditor, Principal, TokenOwner, UserManager
from api.openapi.completion import problems
from api.openapi.routers import guarded
from api.parameters.bodies import json_body
from api.parameters.paging import AfterName, AfterNumber, AfterToken, Limit, id_after, number_after, page_of_views
from api.parameters.reads import Parts, WriterDep, in_turns
from api.present.times import microseconds, time, time_or_none
from api.services import Services, ServicesDep
from store.ids import is_id
from store.jobs import requests
from store.team import audit, login, tokens, users
from store.team.callers import BOOTSTRAP, Caller
from store.team.facts import AuditFilter, ListedSession, digest_of
from torchyard.contract.errors import Conflict, Forbidden, InvalidCursor, NotFound, Unavailable
from torchyard.contract.jobs.filters import Instant
from torchyard.contract.team.requests import USER_NAME, NewToken, NewUser, UserPatch
from torchyard.contract.team.roles import Scope
from torchyard.contract.team.views import AuditView, BrowserSessionView, NewTokenView, TokenView, UserView
from torchyard.contract.wire.schema import NO_NUL
from torchyard.contract.wire.view import Page

router = guarded("team", Forbidden, Unavailable)

GRACE_OF_DISABLED = timedelta(seconds=30)
"""The longest grace of the jobs that are cancelled with their user."""

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
    with services.store.read() as session:
        page = users.list_all(session, limit=limit, after=after)
    return page_of_views(UserView, page, cursor=lambda user: user.name)


@router.post("/users", status_code=201, responses=problems(Conflict))
def add_user(services: ServicesDep, caller: UserManager, new: NewUserBody) -> UserView:
    """Adds a user. Make a token for them next: without one they can do nothing."""
    with services.store.write("team") as session:
        return users.add(session, new.name, new.role, caller=caller)


@router.patch("/users/{name}", responses=problems(Conflict))
async def change_user(
    services: ServicesDep, writer: WriterDep, caller: UserManager, name: str, patch: UserPatchBody
) -> UserView:
    """Changes the role of a user, or disables or enables the user.

    The tokens and streams of a disabled user end at once. `jobs: cancel` also cancels the user's jobs, one after
    another: repeat the request if the connection breaks.
    """
    changed = await run_in_threadpool(_change, services, name, patch, caller)
    if patch.disabled and patch.jobs == "cancel":
        await writer.run(cancelling_jobs(services, name, caller), caller)
    return changed


@router.get("/tokens")
@in_turns
def list_tokens(
    services: ServicesDep,
    caller: TokenOwner,
    user: Annotated[
        Text | None, Query(description="only this user's; only an administrator may name another user")
    ] = None,
    limit: Limit = 100,
    after: AfterToken = None,
) -> Page[TokenView]:
    """Lists your tokens, newest first, including expired and revoked ones."""
    before = id_after(after, "tok")
    owner = _owner(caller, user)
    with services.store.read() as session:
        page = tokens.list_owned(session, owner, limit=limit, before=before)
    return page_of_views(TokenView, page, cursor=lambda token: token.id)


@router.post("/tokens", status_code=201)
def make_token(services: ServicesDep, caller: TokenOwner, new: NewTokenBody) -> NewTokenView:
    """Makes a token. Only this answer has its text.

    It cannot have a scope that the token of the request lacks. A token for the same user ends when the token of the
    request expires or is revoked.
    """
    owner = _owner(caller, new.user)
    scopes = caller.scopes - {Scope.JOBS_EXEC} if new.scopes is None else frozenset(new.scopes)
    if not scopes <= caller.scopes:
        beyond = ", ".join(sorted(scopes - caller.scopes))
        raise Forbidden(f"your role or your token does not have {beyond}: a new token cannot have more than you")
    made_by = caller.token_id if owner == caller.name else None
    with services.store.write("team") as session:
        token, text = tokens.make(
            session, owner, name=new.name, scopes=scopes, lifetime=new.lifetime, made_by=made_by, caller=caller
        )
    return NewTokenView(**token.model_dump(), token=text)


@router.delete("/tokens/{token_id}", status_code=204)
def revoke_token(services: ServicesDep, caller: TokenOwner, token_id: str) -> None:
    """Revokes a token and all tokens made with it. Their streams and browser sessions end at once."""
    if not is_id(token_id, "tok"):
        raise NotFound(f"there is no token {token_id[:100]!r}")
    user = None if Scope.USERS in caller.scopes else caller.name
    with services.store.write("team") as session:
        tokens.revoke(session, token_id, user=user, caller=caller)


@router.get("/sessions")
@in_turns
def list_sessions(services: ServicesDep, caller: TokenOwner) -> Page[BrowserSessionView]:
    """Lists your browser sessions, the last used first."""
    with services.store.read() as session:
        sessions = login.list_sessions(session, caller.name, credential=_credential(services, caller))
    return Page[BrowserSessionView](data=[_session_view(each, current=caller.session) for each in sessions])


@router.delete("/sessions/{session_id}", status_code=204)
def end_session(services: ServicesDep, caller: TokenOwner, session_id: str) -> None:
    """Logs out one of your browsers. Its streams end."""
    credential = _credential(services, caller)
    with services.store.write("team") as session:
        login.end_session(session, session_id, user=caller.name, credential=credential, caller=caller)


@router.get("/audit")
@in_turns
def list_audit(
    *,
    services: ServicesDep,
    caller: Auditor,
    who: Annotated[Text | None, Query(description="only this user")] = None,
    action: Annotated[
        Text | None, Query(description="only this action, such as `job.cancel`; `job` selects all actions on jobs")
    ] = None,
    object: Annotated[Text | None, Query(description="only entries about this object, such as a job's id")] = None,
    outcome: Annotated[Text | None, Query(description="only this outcome: `ok` or an error code")] = None,
    since: Annotated[
        Instant | None, Query(alias="from", description="only entries at or after this time (RFC 3339)")
    ] = None,
    until: Annotated[
        Instant | None, Query(alias="to", description="only entries at or before this time (RFC 3339)")
    ] = None,
    limit: Limit = 100,
    after: AfterNumber = None,
) -> Page[AuditView]:
    """Lists the entries of the audit log, newest first.

    One request reads at most 100,000 entries. With a narrow filter, a page may be empty and still have a `next`.
    """
    before = number_after(after) if after is not None else None
    begins, ends = (None if each is None else microseconds(each) for each in (since, until))
    where = AuditFilter(who, action, object, outcome, begins, ends)
    with services.store.read() as session:
        page = audit.list_entries(session, where, limit=limit, before=before)
    cursor = None if page.next is None else str(page.next)
    return Page[AuditView](data=[*page.entries], has_more=cursor is not None, next=cursor)


def cancelling_jobs(services: Services, owner: str, caller: Caller) -> Parts[None]:
    """Cancels all jobs of a user, each in its own transaction. They have `GRACE_OF_DISABLED` at most to stop."""
    with services.store.read() as session:
        live = users.list_live_jobs(session, owner)
    for job_id in live:
        with suppress(NotFound, Conflict), services.store.write("cancel") as session:  # deleted or ended meanwhile
            requests.act(session, "cancel", job_id, caller=caller, grace=GRACE_OF_DISABLED)
        yield


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


def _session_view(listed: ListedSession, *, current: str) -> BrowserSessionView:
    """`current`: the digest of the one in which the request was made."""
    return BrowserSessionView(
        id=listed.id,
        token_id=listed.credential if listed.credential.startswith("tok_") else None,
        address=listed.address,
        created_at=time(listed.created_at),
        used_at=time_or_none(listed.used_at),
        expires_at=time(listed.expires_at),
        current=listed.digest == current,
    )


def _change(services: Services, name: str, patch: UserPatch, caller: Caller) -> UserView:
    with services.store.write("team") as session:
        return users.change(session, name, role=patch.role, disabled=patch.disabled, caller=caller)
