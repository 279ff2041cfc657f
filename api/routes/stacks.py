"""Asks for the stacks of a running job's ranks, and answers them to the job's owner and administrators."""

from api.auth.callers import JobId, JobReader, JobWriter
from api.openapi.routers import guarded
from api.parameters.reads import in_turns
from api.present.times import time, time_or_none
from api.services import ServicesDep
from store.attempts import stacks
from store.output.facts import Stacks
from torchyard.contract.errors import Conflict, Unavailable
from torchyard.contract.telemetry.views import RankStacksView, StacksView

router = guarded("telemetry", Conflict, Unavailable)


@router.post("/jobs/{job_id}/stacks", status_code=202)
def request_stacks(services: ServicesDep, caller: JobWriter, job_id: JobId) -> StacksView:
    """Asks every rank of a running job for the Python stacks of its threads. The job continues.

    Read the stacks by `GET` some seconds later. A second request before that changes nothing.
    """
    with services.store.write("stacks") as session:
        return stacks_view(stacks.request(session, job_id, caller))


@router.get("/jobs/{job_id}/stacks")
@in_turns
def get_stacks(services: ServicesDep, caller: JobReader, job_id: JobId) -> StacksView:
    """Returns the newest stacks to the job's owner or an administrator. `ranks` is empty until they arrive."""
    with services.store.read() as session:
        return stacks_view(stacks.read(session, job_id, caller))


def stacks_view(known: Stacks) -> StacksView:
    """Returns the view of an attempt's stacks. An answer to an earlier request is not shown while another waits."""
    answer = known.answer
    if known.requested_at is not None or answer is None:
        return StacksView(attempt=known.attempt, requested_at=time_or_none(known.requested_at))
    return StacksView(
        attempt=known.attempt,
        requested_at=time(answer["requested_at"]),
        taken_at=time(answer["taken_at"]),
        ranks=[RankStacksView.model_validate(rank) for rank in answer["ranks"]],
    )
