"""Opens reaches of users into running jobs: programs, terminals, and connections to what the job listens on."""

from typing import Annotated

from starlette.responses import Response

from api.auth.callers import JobId, Reacher
from api.openapi.routers import guarded
from api.parameters.bodies import json_body
from api.parameters.reads import in_turns
from api.present.times import time
from api.services import ServicesDep
from store.reaches import reaches
from store.reaches.facts import OpenedReach
from torchyard.contract.errors import Conflict, Unavailable
from torchyard.contract.reach.requests import NewReach
from torchyard.contract.reach.views import OpenedReachView, ReachesView

router = guarded("reaches", Conflict, Unavailable)

ReachBody = Annotated[NewReach, json_body(NewReach, example={"kind": "program", "argv": ["nvidia-smi"]})]


@router.post("/jobs/{job_id}/reaches", status_code=201)
def open_reach(services: ServicesDep, caller: Reacher, job_id: JobId, wanted: ReachBody) -> OpenedReachView:
    """Opens a shell, a program, ports or SSH inside your own running job.

    Connect to the WebSocket at `url`. The worker connects there too, and then starts the program in the job's sandbox.
    No token is sent there: both ends prove by HMAC that they know `secret`. The service stores none of the bytes. The
    reach ends with the attempt, the token, the user and the user's role.
    """
    with services.store.write("reach") as session:
        opened = reaches.open_reach(
            session,
            job_id,
            wanted.order(),
            caller=caller,
            login=caller.session,
            by_operators=services.settings.exec_by_operators,
        )
    return _opened_view(opened)


@router.get("/jobs/{job_id}/reaches")
@in_turns
def list_reaches(services: ServicesDep, caller: Reacher, job_id: JobId) -> ReachesView:
    """Lists the open reaches of a job. The owner and administrators see all, others see their own."""
    with services.store.read() as session:
        return ReachesView(data=reaches.list_open(session, job_id, caller=caller))


@router.post("/reaches/{reach_id}/meetings", summary="Reconnect to reach", status_code=201)
def meet_again(services: ServicesDep, caller: Reacher, reach_id: str) -> OpenedReachView:
    """Reconnects to a reach after the connection was lost. The previous connection ends.

    A program in a terminal waits for 12 hours, other programs for one minute.
    """
    with services.store.write("reach") as session:
        return _opened_view(reaches.meet_again(session, reach_id, caller=caller, login=caller.session))


@router.delete("/reaches/{reach_id}", status_code=204, response_class=Response)
def end_reach(services: ServicesDep, caller: Reacher, reach_id: str) -> Response:
    """Ends a reach and its program. The job continues."""
    with services.store.write("reach") as session:
        reaches.end(session, reach_id, caller=caller)
    return Response(status_code=204)


def _opened_view(opened: OpenedReach) -> OpenedReachView:
    return OpenedReachView(
        id=opened.id,
        job_id=opened.job_id,
        attempt=opened.attempt,
        meeting=opened.meeting,
        secret=opened.secret,
        url=f"/v1/reaches/{opened.id}/stream?meeting={opened.meeting}",
        expires_at=time(opened.until),
    )
