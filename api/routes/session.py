"""Opens and ends the sessions of browsers, and tells callers who they are."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from api import present
from api.address import is_https
from api.auth import Account, Principal, check_local, check_origin, credential_of, identified, of_code
from api.body import LoginBody, parsed
from api.codes import LIFETIME_S
from api.openapi import problems, reads
from api.services import Services, ServicesDep
from store.commands import team
from torchyard.contract.errors import Forbidden, NotAuthorized, TooManyRequests, Unavailable
from torchyard.contract.requests import CodeLogin, Login, parse_request
from torchyard.contract.views import LoginCodeView, MeView

router = APIRouter(
    prefix="/v1", tags=["team"], responses=problems(NotAuthorized, Unavailable, Forbidden, TooManyRequests)
)


@router.post("/session", openapi_extra=reads("Login", "CodeLogin", example={"token": "ty_…"}))
async def open_session(request: Request, services: ServicesDep, body: LoginBody, response: Response) -> MeView:
    """Opens a session for a browser: answers an HttpOnly cookie for a token, or for a login code.

    Only a browser on the service's machine may send a code. Requests with the cookie that change something send the
    `csrf` of the answer as `X-CSRF-Token`.
    """
    if "origin" in request.headers:
        check_origin(request)
    principal = await _principal(request, services, parsed(body))
    credential = credential_of(services, principal)
    row, cookie = await run_in_threadpool(team.open_session, services.store, credential, caller=principal)
    response.set_cookie(
        services.cookie_name,
        cookie,
        expires=present.time(row.expires_at),
        path="/",
        secure=is_https(request.scope, services.settings) or request.headers.get("origin", "").startswith("https:"),
        httponly=True,
        samesite="strict",
    )
    return _me(replace(principal, cookie=cookie))


@router.post("/session/codes", status_code=201)
async def make_login_code(request: Request, services: ServicesDep, caller: Account) -> LoginCodeView:
    """Makes a one-time code that opens a session in a browser on the service's machine. It is valid for a minute.

    Only a program on that machine that connects without a proxy may ask for one, with a token.
    """
    check_local(request, services)
    if caller.cookie:
        raise Forbidden("send a token: a session makes no login codes")
    await run_in_threadpool(team.record_login_code, services.store, caller=caller)
    expires_at = datetime.now(UTC) + timedelta(seconds=LIFETIME_S)
    code = services.codes.make(credential_of(services, caller))
    return LoginCodeView(code=code, expires_at=expires_at, has_page=request.app.state.page.is_built)


@router.delete("/session", status_code=204, response_class=Response)
def close_session(request: Request, services: ServicesDep, caller: Account) -> Response:
    """Ends the session of the request's cookie, if it has one."""
    cookie = request.cookies.get(services.cookie_name)
    response = Response(status_code=204)
    if cookie is not None:
        team.close_session(services.store, cookie, caller=caller)
        response.delete_cookie(services.cookie_name, path="/", httponly=True, samesite="strict")
    return response


@router.get("/me")
async def get_me(caller: Account) -> MeView:
    """Returns who makes the request, and what they may do."""
    return _me(caller)


async def _principal(request: Request, services: Services, body: object) -> Principal:
    """Returns whose token or login code the body has."""
    if isinstance(body, dict) and "code" in body:
        return await of_code(request, services, parse_request(CodeLogin, body).code)
    return await identified(request, services, parse_request(Login, body).token)


def _me(caller: Principal) -> MeView:
    return MeView(
        name=caller.name,
        role=caller.role,
        scopes=sorted(caller.scopes),
        token_id=caller.token_id,
        csrf=caller.csrf,
    )
