"""Authenticates requests: by a token, a browser's session or a link. `require` is the dependency of every route."""

from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
import hmac
import logging
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import Depends, Query, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection

from api.auth.access import Access, AccessDep
from api.server.address import client_address, host_of, is_local
from store.ids import is_id
from store.jobs import timeline
from store.jobs.facts import VisibleJobs
from store.team import access as job_access
from store.team import login, tokens
from store.team.callers import BOOTSTRAP, Caller
from store.team.facts import BrowserSessionFacts, Identity, digest_of
from torchyard.contract.errors import Forbidden, NotAuthorized, NotFound, SessionEnded, Unavailable
from torchyard.contract.team.roles import Role, Scope

CSRF_HEADER = "X-CSRF-Token"
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Principal(Caller):
    """A caller whose credential is valid."""

    scopes: frozenset[Scope] = frozenset()
    session: str = ""
    """The digest of the browser's session, if the request was made in one."""
    use_is_stale: bool = False
    """Whether to store this use of the session: the stored one is more than a minute old."""

    @property
    def key(self) -> str:
        """The key of the caller's limits: the user, who may have many tokens."""
        return self.name


_bearer = HTTPBearer(auto_error=False, description="The token that `torchyard up` printed, or a personal one.")
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


async def authenticate(request: Request, access: AccessDep, credentials: Credentials) -> Principal:
    """Returns who makes the request.

    Raises NotAuthorized, TooManyRequests, and Forbidden for a request from another web site.
    """
    if credentials is not None:
        return await identify(request, access, credentials.credentials)
    names = (access.cookie_name(secure=True), access.cookie_name(secure=False))
    cookies = [request.cookies[name] for name in names if name in request.cookies]
    if not cookies:
        raise NotAuthorized("send the header `Authorization: Bearer TOKEN`")
    csrf = request.headers.get(CSRF_HEADER)
    if csrf is None:  # such as a web server on another port of this host sends, which the browser gave the cookie
        raise SessionEnded(f"the header {CSRF_HEADER} is missing beside the cookie: send it, or log in again")
    principal = await access.at_once(_find_by_cookies, access, cookies, csrf)
    if principal is None:
        await _count_unaudited(access, request, what="cookies")
        raise SessionEnded("the session has ended: log in again")
    if request.method not in _SAFE:
        check_origin(request)
    admitted = await _admitted(access, principal, request)
    if admitted.use_is_stale:
        await access.note(_mark_used, access, admitted)
    return admitted


async def authenticate_download(
    request: Request,
    access: AccessDep,
    credentials: Credentials,
    link: Annotated[
        str | None,
        Query(
            max_length=200,
            description="the credential in a link from `POST /v1/links`; a browser download needs no header with it",
        ),
    ] = None,
) -> Principal:
    """Returns who asks for a file: the user of the link, or who `authenticate` returns. Raises the same."""
    if link is None or credentials is not None:
        return await authenticate(request, access, credentials)
    query = request.scope["query_string"].decode("latin-1")
    session = access.links.session_of(link, path=request.scope["path"], query=query)
    principal = None if session is None else await access.at_once(_find_by_session, access, session)
    if principal is None:
        raise NotAuthorized("the link is not valid: it works for one file, within one minute, during its session")
    return await _admitted(access, principal, request)


async def identify(request: Request, access: Access, token: str) -> Principal:
    """Returns whose token the request has. Raises NotAuthorized, TooManyRequests and Unavailable.

    A wrong token is counted against its address, and added to the audit. A valid one is accepted from any address.
    """
    if hmac.compare_digest(token.encode(), access.token.encode()):
        return await _admitted(access, _ADMIN, request)
    known = access.identities.find(token)
    if known is not None:
        return await _admitted(access, _principal(known), request)
    read_at = access.identities.changes
    identity = await access.at_once(_find_identity, access, token)
    if identity is not None:
        access.identities.remember(token, identity, read_at=read_at)
        admitted = await _admitted(access, _principal(identity), request)
        if identity.use_is_stale:
            await access.note(_mark_used, access, admitted)
        return admitted
    await _count_failed_login(access, request, what="tokens")
    raise NotAuthorized("the token is not valid: it is unknown, expired or revoked, or its user is disabled")


async def identify_by_code(request: Request, access: Access, code: str, *, ends: bool) -> Principal:
    """Returns the user of the login code. `ends`: the code becomes invalid.

    Raises Forbidden unless the client is on this machine.

    A wrong code is counted and added to the audit as a wrong token is. Raises NotAuthorized, TooManyRequests and
    Unavailable.
    """
    check_local(request, access)
    principal = await access.at_once(_find_by_code, access, code)
    if principal is not None and (not ends or await run_in_threadpool(_take_code, access, code)):
        return await _admitted(access, principal, request)
    await _count_failed_login(access, request, what="codes")
    raise NotAuthorized("the code was used or has expired: get a new one with `torchyard open`")


async def count_wrong_body(request: Request, access: Access) -> None:
    """Counts a body that is no login as a wrong token of its address. Raises TooManyRequests."""
    await _count_unaudited(access, request, what="logins")


async def count_wrong_proof(request: HTTPConnection, access: Access) -> None:
    """Counts a proof that is wrong as a wrong token of its address. Raises TooManyRequests."""
    await _count_unaudited(access, request, what="proofs")


def stranger(request: Request, access: Access) -> Principal:
    """Returns who makes a request without a credential, as the audit records it."""
    return _with_request(access, _NOBODY, request)


async def count_wrong_token(request: Request, access: Access) -> None:
    """Counts and audits a token that is nobody's. Raises TooManyRequests and Unavailable."""
    await _count_failed_login(access, request, what="tokens")


async def count_wrong_code(request: Request, access: Access) -> None:
    """Counts and audits a code that is not valid as a wrong token. Raises TooManyRequests and Unavailable."""
    await _count_failed_login(access, request, what="codes")


def credential_of(access: Access, principal: Principal) -> str:
    """Returns the name of the principal's token in sessions and login codes, which end with the token."""
    return principal.token_id or digest_of(access.token)


def check_local(request: Request, access: Access) -> None:
    """Raises Forbidden unless the client is on this machine, and connects without a proxy."""
    if not is_local(request.scope, access.settings):
        raise Forbidden("login codes are for programs on the service's own machine, without a proxy: use a token")


def require(scope: Scope, *, by: Callable[..., Any] = authenticate) -> Any:
    """Returns the dependency of a route: the caller, whose token must have the scope. Raises Forbidden."""

    async def allowed(principal: Annotated[Principal, Depends(by)]) -> Principal:
        if scope not in principal.scopes:
            raise Forbidden(f"this needs the scope {scope}, which your role or your token does not have")
        return principal

    allowed.scope = scope  # pyright: ignore[reportFunctionMemberAccess] - a test reads it
    return Depends(allowed)


JobReader = Annotated[Principal, require(Scope.JOBS_READ)]
FileReader = Annotated[Principal, require(Scope.JOBS_READ, by=authenticate_download)]
JobWriter = Annotated[Principal, require(Scope.JOBS_WRITE)]
Reacher = Annotated[Principal, require(Scope.JOBS_EXEC)]
ClusterReader = Annotated[Principal, require(Scope.CLUSTER_READ)]
ClusterFileReader = Annotated[Principal, require(Scope.CLUSTER_READ, by=authenticate_download)]
ClusterWriter = Annotated[Principal, require(Scope.CLUSTER_WRITE)]
FiguresReader = Annotated[Principal, require(Scope.FIGURES_READ)]
Account = Annotated[Principal, require(Scope.ACCOUNT)]
TokenOwner = Annotated[Principal, require(Scope.TOKENS)]
SecretOwner = Annotated[Principal, require(Scope.SECRETS)]
UserManager = Annotated[Principal, require(Scope.USERS)]
Auditor = Annotated[Principal, require(Scope.AUDIT)]
"""Parameters of routes: the caller, who has the scope."""


def check_watcher(access: Access, principal: Principal, job_id: str) -> None:
    """Checks that an open stream may go on. Raises NotAuthorized, NotFound and Unavailable."""
    if not _is_still_valid(access, principal):
        raise NotAuthorized("the token or the session has ended")
    with access.store.read() as session:
        job_access.readable_job(session, job_id, principal)


def check_watched(access: Access, principal: Principal, job_ids: Collection[str]) -> VisibleJobs:
    """Returns which of the jobs an open stream may go on to show. Raises NotAuthorized and Unavailable."""
    if not _is_still_valid(access, principal):
        raise NotAuthorized("the token or the session has ended")
    with access.store.read() as session:
        return timeline.find_visible(session, job_ids, caller=principal)


async def open_stream(access: AccessDep, caller: JobReader) -> AsyncGenerator[None]:
    """A route's dependency: counts the answer among the user's open streams until it ends. Raises TooManyRequests."""
    async with access.open_streams.open(caller.key):
        yield


async def _job_id(job_id: str) -> str:
    """Raises NotFound if the text is not a job's id."""
    if not is_id(job_id, "job"):
        raise NotFound(f"there is no job {job_id[:100]!r}")
    return job_id


JobId = Annotated[str, Depends(_job_id)]
"""A route's parameter: a well-formed job id."""


_ADMIN = Principal(BOOTSTRAP, Role.ADMIN, scopes=Role.ADMIN.scopes)
_NOBODY = Principal("", Role.VIEWER)


async def _admitted(access: Access, principal: Principal, request: Request) -> Principal:
    await access.requests.take(principal.key, advice=f"{principal.name} has sent too many requests")
    return _with_request(access, principal, request)


def _with_request(access: Access, principal: Principal, request: HTTPConnection) -> Principal:
    address = client_address(request.scope, access.settings)
    return replace(principal, address=address, request_id=request.state.request_id)


async def _count_unaudited(access: Access, request: HTTPConnection, *, what: str) -> None:
    """Counts what costs as much as a wrong token, but is in no audit. Raises TooManyRequests."""
    with suppress(Unavailable):  # this process has counted it
        await _count_failed_login(access, request, what=what, audited=False)


async def _count_failed_login(access: Access, request: HTTPConnection, *, what: str, audited: bool = True) -> None:
    """Counts and audits a wrong token or code. Raises TooManyRequests if the client has sent too many, Unavailable.

    This process counts first, so that nobody makes the database count more than the limit.
    """
    nobody = _with_request(access, _NOBODY, request)
    host, most = host_of(nobody.address), access.settings.max_wrong_tokens_per_minute
    access.wrong_tokens.take(host, advice=f"{nobody.address} has sent too many wrong {what}")
    await access.note(_store_failed_login, access, nobody, host, most=most, audited=audited)


def _store_failed_login(access: Access, nobody: Principal, host: str, *, most: int, audited: bool) -> None:
    with access.store.write("team") as session:
        login.count_failed(session, host, most=most, caller=nobody, audited=audited)


def _is_still_valid(access: Access, principal: Principal) -> bool:
    """Returns whether the principal's credential is valid, for the same role."""
    if principal.session:
        now = _find_by_session(access, principal.session)
    elif principal.token_id is None:
        return True
    else:
        now = _find_by_token_id(access, principal.token_id)
    return now is not None and now.role is principal.role


def _mark_used(access: Access, caller: Principal) -> None:
    try:
        with access.store.write("team") as session:
            if caller.session:
                login.mark_session_used(session, caller.session, address=caller.address)
            elif caller.token_id is not None:
                tokens.mark_used(session, caller.token_id)
    except Unavailable as error:
        _log.warning("the last use of a token or of a session is not stored: %s", error.message)


def _find_by_cookies(access: Access, cookies: Sequence[str], csrf: str) -> Principal | None:
    """Returns the user of the session that has one of the cookies and this CSRF secret."""
    with access.store.read() as session:
        sessions = (login.find_session(session, cookie, csrf=csrf) for cookie in cookies)
        opened = next((each for each in sessions if each is not None), None)
    return _add_session(access, opened)


def _find_by_session(access: Access, digest: str) -> Principal | None:
    with access.store.read() as session:
        opened = login.find_session_by_digest(session, digest)
    return _add_session(access, opened)


def _add_session(access: Access, opened: BrowserSessionFacts | None) -> Principal | None:
    principal = None if opened is None else _find_by_credential(access, opened.credential)
    if opened is None or principal is None:
        return None
    scopes = principal.scopes if opened.exec else principal.scopes - {Scope.JOBS_EXEC}
    return replace(principal, session=opened.digest, use_is_stale=opened.use_is_stale, scopes=scopes)


def _find_identity(access: Access, token: str) -> Identity | None:
    with access.store.read() as session:
        return tokens.find(session, token)


def _take_code(access: Access, code: str) -> bool:
    with access.store.write("team") as session:
        return login.take_code(session, code)


def _find_by_code(access: Access, code: str) -> Principal | None:
    with access.store.read() as session:
        credential = login.find_code(session, code)
    return None if credential is None else _find_by_credential(access, credential)


def _find_by_credential(access: Access, credential: str) -> Principal | None:
    if hmac.compare_digest(credential, digest_of(access.token)):
        return _ADMIN
    return _find_by_token_id(access, credential)


def _find_by_token_id(access: Access, token_id: str) -> Principal | None:
    with access.store.read() as session:
        identity = tokens.find_by_id(session, token_id)
    return None if identity is None else _principal(identity)


def _principal(identity: Identity) -> Principal:
    return Principal(identity.name, identity.role, token_id=identity.token_id, scopes=identity.scopes)


def check_origin(request: HTTPConnection) -> None:
    """Raises Forbidden unless the header `Origin` names the host that the request was sent to."""
    try:
        origin = urlsplit(request.headers.get("origin", ""))
    except ValueError:
        raise Forbidden("the `Origin` of the request is not a URL") from None
    if origin.scheme not in {"http", "https"} or origin.netloc.lower() != request.headers["host"].lower():
        raise Forbidden("the request comes from another web site: its `Origin` is not this service")
