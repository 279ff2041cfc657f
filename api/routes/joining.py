"""Makes codes by which machines become workers and users log in, and answers who sends one."""

from dataclasses import replace
from datetime import timedelta
from typing import Annotated

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from api.auth.callers import ClusterWriter, Principal, UserManager, count_wrong_code, stranger
from api.auth.workers import RemoteWorker
from api.openapi.completion import problems
from api.openapi.routers import unguarded
from api.parameters.bodies import JoiningBody, json_body
from api.present.times import time
from api.server import certificate
from api.services import Services, ServicesDep
from api.settings import Settings
from store.cluster import joining
from store.ids import is_id
from store.team import join_codes, tokens, users
from torchyard.contract.errors import Conflict, Forbidden, NotAuthorized, NotFound, TooManyRequests, Unavailable
from torchyard.contract.installs import InstallFileView
from torchyard.contract.team.codes import JoinCode
from torchyard.contract.team.requests import Joining, NewCode
from torchyard.contract.team.roles import Role
from torchyard.contract.team.views import JoinedView, NewCodeView, OwnWorkerView
from torchyard.contract.wire.version import gap, own_version
from torchyard.host.listening import is_loopback

router = unguarded("team", NotAuthorized, Forbidden, TooManyRequests, Unavailable, prefix="/v1")

_LIFETIME = timedelta(days=90)
"""Of the token of who logs in by a code."""
NewCodeBody = Annotated[NewCode, json_body(NewCode, example={"kind": "worker", "name": "box-b"})]


@router.post("/codes", status_code=201, responses=problems(NotFound, Conflict))
def make_join_code(services: ServicesDep, caller: UserManager, new: NewCodeBody) -> NewCodeView:
    """Makes a one-time code for a new worker or a new user. It is valid for ten minutes.

    The code has the fingerprint of the service's certificate. The joining machine checks it before it sends the code.
    """
    with services.store.write("team") as session:
        made = join_codes.make(session, new.kind, new.name, users_of=new.users, caller=caller)
    code = JoinCode(new.kind, certificate.pinned(services.settings), made.secret)
    wheel = services.installs.get().first
    return NewCodeView(
        code=code.text,
        expires_at=time(made.expires_at),
        url=_own_url(services.settings),
        wheel=InstallFileView(name=wheel.name, sha256=wheel.sha256, size=len(wheel.content)),
    )


@router.post("/join", responses=problems(Conflict))
async def join(request: Request, services: ServicesDep, sent: JoiningBody) -> JoinedView:
    """Exchanges a join code for a token of a worker or a user. Needs no token.

    Send as `code` the part after the last dot. A machine may repeat the request with the same `key`: it gets a new
    token, and the earlier one ends.
    """
    nobody = stranger(request, services.access)
    try:
        return await run_in_threadpool(_join, services, sent, nobody)
    except NotAuthorized:
        await count_wrong_code(request, services.access)
        raise


@router.get("/worker")
async def get_own_worker(services: ServicesDep, worker_id: RemoteWorker) -> OwnWorkerView:
    """Returns the worker that a worker's token belongs to."""
    return OwnWorkerView(worker_id=worker_id)


@router.delete("/workers/{worker_id}", status_code=204, responses=problems(NotFound, Conflict))
def remove_worker(services: ServicesDep, caller: ClusterWriter, worker_id: str) -> None:
    """Removes a remote or lost worker. Its token ends at once, and its jobs return to the queue."""
    if not is_id(worker_id, "wrk"):
        raise NotFound(f"there is no worker {worker_id[:100]!r}")
    with services.store.write("drain") as session:
        joining.remove(session, worker_id, caller=caller)


def _join(services: Services, sent: Joining, nobody: Principal) -> JoinedView:
    with services.store.write("team") as session:
        found = join_codes.find(session, sent.code, key=sent.key)
        if found.kind == "worker" and (why := gap(sent.version, own_version())) is not None:
            raise Conflict(
                f"{why}. The line that `torchyard workers add` prints installs that of the service; the code stays"
                " valid"
            )
        found = join_codes.take(session, sent.code, key=sent.key)
        caller = replace(nobody, name=found.made_by, role=Role.ADMIN)
        if found.kind == "worker":
            if found.given is not None:
                worker = joining.join_again(session, found.given)
            else:
                worker = joining.join(session, found.name, users=found.users, caller=caller)
            join_codes.note_given(session, sent.code, worker.id)
            return JoinedView(kind="worker", name=worker.name, token=worker.token, worker_id=worker.id)
        user = users.find(session, found.name)
        if user.disabled_at is not None:
            raise Forbidden(f"the user {user.name} is disabled")
        scopes = Role(user.role).scopes
        if found.given is not None:
            tokens.revoke(session, found.given, user=user.name, caller=caller)
        made, text = tokens.make(
            session, user.name, name="login by a code", scopes=scopes, lifetime=_LIFETIME, caller=caller
        )
        join_codes.note_given(session, sent.code, made.id)
        return JoinedView(kind="user", name=user.name, token=text)


def _own_url(settings: Settings) -> str | None:
    """Returns the address of this service for other machines; None if they cannot reach it, or it knows none."""
    if settings.public_url:
        return settings.public_url
    if is_loopback(settings.host):
        return None
    scheme = "http" if settings.tls_files is None else "https"
    is_any = settings.host in {"0.0.0.0", "::", ""}  # noqa: S104 - compared, not bound
    known = certificate.outgoing_addresses() if is_any else [settings.host]
    if not known:
        return None
    host = f"[{known[0]}]" if ":" in str(known[0]) else str(known[0])
    return f"{scheme}://{host}:{settings.port}"
