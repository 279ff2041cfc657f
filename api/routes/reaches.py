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
    """Opens a reach into a running job of one's own: what is asked for is started in its sandbox, once the client and
    the worker have met at the WebSocket at `url`.

    No token is sent there: both prove by HMAC that they know the secret, which is not sent either. The stream of bytes
    between them is of no meaning to the service, which keeps nothing of it. The reach ends with the token, the user,
    the user's role and the attempt.
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
    """Lists the open reaches into a job: to its owner and administrators all, to others their own."""
    with services.store.read() as session:
        return ReachesView(data=reaches.list_open(session, job_id, caller=caller))


@router.post("/reaches/{reach_id}/meetings", status_code=201)
def meet_again(services: ServicesDep, caller: Reacher, reach_id: str) -> OpenedReachView:
    """Joins a reach again whose connection was cut, by a further meeting. The one before ends.

    What runs in a terminal waits for 12 hours, and other programs for a minute.
    """
    with services.store.write("reach") as session:
        return _opened_view(reaches.meet_again(session, reach_id, caller=caller, login=caller.session))


@router.delete("/reaches/{reach_id}", status_code=204, response_class=Response)
def end_reach(services: ServicesDep, caller: Reacher, reach_id: str) -> Response:
    """Ends a reach, and the program that it has started. The job goes on."""
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
