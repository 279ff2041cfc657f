"""Asks for the stacks of a running job's ranks, and answers them to the job's owner and administrators."""

from api.access.auth import JobId, JobReader, JobWriter
from api.openapi.routers import guarded
from api.parameters.reads import in_turns
from api.present import telemetry as present
from api.services import ServicesDep
from store.attempts import stacks
from torchyard.contract.errors import Conflict, Unavailable
from torchyard.contract.views.telemetry import StacksView

router = guarded("telemetry", Conflict, Unavailable)


@router.post("/jobs/{job_id}/stacks", status_code=202)
def request_stacks(services: ServicesDep, caller: JobWriter, job_id: JobId) -> StacksView:
    """Asks every rank of a running job where it is: for the Python stacks of its threads. The job goes on.

    The answer is there some seconds later. A second request before that changes nothing.
    """
    with services.store.write("stacks") as session:
        return present.stacks(stacks.request(session, job_id, caller))


@router.get("/jobs/{job_id}/stacks")
@in_turns
def get_stacks(services: ServicesDep, caller: JobReader, job_id: JobId) -> StacksView:
    """Returns the newest answer, to the job's owner and administrators. `ranks` is empty while it is not there."""
    with services.store.read() as session:
        return present.stacks(stacks.read(session, job_id, caller))
