"""Opens and ends the sessions of browsers, and tells callers who they are."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Depends, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from api.auth.callers import Account, Principal, check_local, check_origin, credential_of, identify, identify_by_code
from api.openapi.components import JOB
from api.openapi.routers import unguarded
from api.parameters.bodies import CodeBody, LoginBody, json_body
from api.present.times import time
from api.server.address import is_https
from api.services import Services, ServicesDep
from store.team import login as logins
from store.team import users
from store.team.facts import NewLoginCode, OpenedSession
from store.team.limits import check_change
from torchyard.contract.errors import Forbidden, NotAuthorized, QuotaExceeded, TooManyRequests, Unavailable
from torchyard.contract.team.requests import CodeLogin, FileLink, Login, PreferenceChanges
from torchyard.contract.team.roles import Scope
from torchyard.contract.team.views import CodeOwnerView, FileLinkView, LoginCodeView, MeView, SessionView
from torchyard.contract.wire.schema import parse_request

router = unguarded("team", NotAuthorized, Unavailable, Forbidden, TooManyRequests, prefix="/v1")

LinkBody = Annotated[FileLink, json_body(FileLink, example={"path": f"/v1/jobs/{JOB}/logs/download"})]

PreferencesBody = Annotated[
    PreferenceChanges, json_body(PreferenceChanges, example={"preferences": {"charts": {"folded": ["lr"]}}})
]


async def _from_here(request: Request) -> None:
    """Raises Forbidden if a browser says that another web site makes the request."""
    if "origin" in request.headers:
        check_origin(request)


@router.post("/session", dependencies=[Depends(_from_here)])
async def open_session(request: Request, services: ServicesDep, login: LoginBody, response: Response) -> SessionView:
    """Logs in a browser with a token or a login code. The answer sets an HttpOnly cookie.

    Only a browser on the service's machine may send a login code. Send `csrf` of the answer as `X-CSRF-Token` with
    every request: the cookie alone is refused.
    """
    principal = await _principal(request, services, login)
    if not isinstance(login, CodeLogin):  # a code was counted when it was made
        await _count_login(services, principal)
    credential = credential_of(services.access, principal)
    opened = await run_in_threadpool(_open, services, credential, principal, exec=login.exec)
    secure = is_https(request.scope, services.settings) or request.headers.get("origin", "").startswith("https:")
    response.set_cookie(
        services.access.cookie_name(secure=secure),
        opened.cookie,
        expires=time(opened.expires_at),
        path="/",
        secure=secure,
        httponly=True,
        samesite="strict",
    )
    if not login.exec:
        principal = replace(principal, scopes=principal.scopes - {Scope.JOBS_EXEC})
    me = await run_in_threadpool(_with_preferences, services, principal)
    return SessionView(**me.model_dump(), csrf=opened.csrf)


@router.post("/session/codes", status_code=201)
async def make_login_code(request: Request, services: ServicesDep, caller: Account) -> LoginCodeView:
    """Makes a one-time login code for a browser on the service's machine. It is valid for one minute.

    Only a program on that machine may ask for one, with a token and without a proxy.
    """
    check_local(request, services.access)
    if caller.session:
        raise Forbidden("login codes need a token, not a session")
    await _count_login(services, caller)
    credential = credential_of(services.access, caller)
    code = await run_in_threadpool(_make_code, services, credential, caller)
    return LoginCodeView(code=code.text, expires_at=time(code.expires_at), has_page=request.app.state.website.is_built)


@router.post("/session/codes/check", dependencies=[Depends(_from_here)])
async def check_login_code(request: Request, services: ServicesDep, login: CodeBody) -> CodeOwnerView:
    """Returns the user of a login code, so that a page can ask before it logs in. The code stays valid."""
    owner = await identify_by_code(request, services.access, login.code, ends=False)
    return CodeOwnerView(name=owner.name, role=owner.role)


@router.delete("/session", status_code=204, response_class=Response)
def close_session(services: ServicesDep, caller: Account) -> Response:
    """Logs out: ends the browser session of this request."""
    response = Response(status_code=204)
    if caller.session:
        with services.store.write("team") as session:
            logins.close_session(session, caller.session, caller=caller)
        for secure in (True, False):
            name = services.access.cookie_name(secure=secure)
            response.delete_cookie(name, path="/", secure=secure, httponly=True, samesite="strict")
    return response


@router.post("/links", status_code=201)
def make_file_link(services: ServicesDep, caller: Account, asked: LinkBody) -> FileLinkView:
    """Makes a link to one file of a job or a model, for a browser download without a header.

    The link works for one minute and ends with the session. A download that has begun continues.
    """
    if not caller.session:
        raise Forbidden("links are for browser sessions: send the token with the download")
    path, ends = services.access.links.make(caller.session, asked.path)
    return FileLinkView(path=path, expires_at=datetime.fromtimestamp(ends, UTC))


@router.get("/me")
async def get_me(
    services: ServicesDep,
    caller: Account,
    preferences: Annotated[bool, Query(description="also answer the user's preferences for the page")] = False,
) -> MeView:
    """Returns the user, role and scopes of this request."""
    if not preferences:
        return _me(caller)
    return await run_in_threadpool(_with_preferences, services, caller)


@router.patch("/me/preferences", summary="Change preferences", status_code=204, response_class=Response)
def keep_preferences(services: ServicesDep, caller: Account, sent: PreferencesBody) -> Response:
    """Changes the user's preferences for the page. Omitted names stay; null removes a name.

    All preferences of a user have at most 32 KiB as JSON.
    """
    with services.store.write("team") as session:
        kept = users.change_preferences(session, caller.name, sent.preferences)
        parse_request(PreferenceChanges, {"preferences": kept})  # small enough, with what was kept before
    return Response(status_code=204)


async def _principal(request: Request, services: Services, login: Login | CodeLogin) -> Principal:
    """Returns whose token or login code was sent."""
    if isinstance(login, CodeLogin):
        return await identify_by_code(request, services.access, login.code, ends=True)
    return await identify(request, services.access, login.token)


def _me(caller: Principal) -> MeView:
    return MeView(name=caller.name, role=caller.role, scopes=sorted(caller.scopes), token_id=caller.token_id)


def _with_preferences(services: Services, caller: Principal) -> MeView:
    with services.store.read() as session:
        preferences = users.find_preferences(session, caller.name)
    return _me(caller).model_copy(update={"preferences": preferences})


def _open(services: Services, credential: str, caller: Principal, *, exec: bool) -> OpenedSession:
    with services.store.write("team") as session:
        return logins.open_session(session, credential, caller=caller, exec=exec)


def _make_code(services: Services, credential: str, caller: Principal) -> NewLoginCode:
    with services.store.write("team") as session:
        return logins.make_code(session, credential, caller=caller)


async def _count_login(services: Services, caller: Principal) -> None:
    """Raises TooManyRequests if a user who has written more than the quota logs in more than once a minute."""
    if await run_in_threadpool(_has_written_beyond_quota, services, caller):
        services.access.logins_beyond_quota.take(
            caller.key, advice=f"{caller.name} has written more than the quota, and logs in too often"
        )


def _has_written_beyond_quota(services: Services, caller: Principal) -> bool:
    try:
        with services.store.read() as session:
            check_change(session, caller.name)
    except QuotaExceeded:
        return True
    return False
