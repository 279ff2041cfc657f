"""Opens and ends the sessions of browsers, and tells callers who they are."""

from dataclasses import replace

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from api import present
from api.address import is_https
from api.auth import Account, Principal, check_origin, identified
from api.body import LoginBody, parsed
from api.openapi import problems, reads
from api.services import ServicesDep
from store.commands import team
from store.rows import tokens
from torchyard.contract.errors import Forbidden, NotAuthorized, Unavailable
from torchyard.contract.requests import Login, parse_request
from torchyard.contract.views import MeView

router = APIRouter(prefix="/v1", tags=["team"], responses=problems(NotAuthorized, Unavailable, Forbidden))


@router.post("/session", openapi_extra=reads("Login", example={"token": "ty_…"}))
async def open_session(request: Request, services: ServicesDep, body: LoginBody, response: Response) -> MeView:
    """Opens a session for a browser: answers an HttpOnly cookie for a token.

    Requests with the cookie that change something send the `csrf` of the answer as `X-CSRF-Token`.
    """
    if "origin" in request.headers:
        check_origin(request)
    principal = await identified(request, services, parse_request(Login, parsed(body)).token)
    credential = principal.token_id or tokens.digest_of(services.token)
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
def get_me(caller: Account) -> MeView:
    """Returns who makes the request, and what they may do."""
    return _me(caller)


def _me(caller: Principal) -> MeView:
    return MeView(
        name=caller.name,
        role=caller.role,
        scopes=sorted(caller.scopes),
        token_id=caller.token_id,
        csrf=caller.csrf,
    )
