"""Makes the addresses at which a browser opens a terminal in a running job, or a port of it."""

from typing import Annotated

from fastapi import Request

from api.auth.callers import JobId, Reacher
from api.openapi.routers import guarded
from api.parameters.bodies import json_body
from api.present.times import time
from api.server.origins import OPEN
from api.services import ServicesDep
from store.reaches import origins
from torchyard.contract.errors import Conflict, Forbidden
from torchyard.contract.reach.requests import NewOrigin
from torchyard.contract.reach.views import OpenedOriginView, OriginsView

router = guarded("reaches", Conflict)

OriginBody = Annotated[NewOrigin, json_body(NewOrigin, example={"port": None})]


@router.get("/jobs/{job_id}/origins", summary="Check web access to job")
async def find_origins(request: Request, services: ServicesDep, caller: Reacher, job_id: JobId) -> OriginsView:
    """Returns whether this browser can open terminals and ports of jobs.

    It can if the operator has set `TORCHYARD_JOB_ORIGINS`, or if the browser uses a loopback address.
    """
    return OriginsView(is_available=services.origins.address_of("x", request.scope) is not None)


@router.post("/jobs/{job_id}/origins", summary="Open terminal or port in browser", status_code=201)
def open_origin(
    request: Request, services: ServicesDep, caller: Reacher, job_id: JobId, wanted: OriginBody
) -> OpenedOriginView:
    """Makes a web address for a terminal or a port of your own running job.

    Only a browser session may do this. The address works once, within 30 seconds. Then a cookie opens it for at most 12
    hours, and no longer than the session and the attempt last.
    """
    if not caller.session:
        raise Forbidden("only browser sessions use these addresses: use `torchyard shell` or `torchyard forward`")
    if services.origins.address_of("x", request.scope) is None:
        raise Conflict("this service has no host names for jobs: use `torchyard shell` or `torchyard forward`")
    with services.store.write("reach") as session:
        opened = origins.open_origin(
            session,
            job_id,
            port=wanted.port,
            caller=caller,
            login=caller.session,
            by_operators=services.settings.exec_by_operators,
        )
    address = services.origins.address_of(opened.name, request.scope)
    return OpenedOriginView(url=f"{address}{OPEN}?ticket={opened.ticket}", expires_at=time(opened.until))
