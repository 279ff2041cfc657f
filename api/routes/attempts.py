"""Lists the attempts of a job."""

from api.access.auth import JobReader
from api.openapi.routers import guarded
from api.parameters.paging import AfterNumber, Limit, number_after, page
from api.parameters.reads import in_turns
from api.present import jobs as present
from api.services import ServicesDep
from store.attempts import history as attempts
from torchyard.contract.errors import Unavailable
from torchyard.contract.views.attempts import AttemptView
from torchyard.contract.views.base import Page

router = guarded("jobs", Unavailable)


@router.get("/jobs/{job_id}/attempts")
@in_turns
def list_attempts(
    *, services: ServicesDep, caller: JobReader, job_id: str, limit: Limit = 100, after: AfterNumber = None
) -> Page[AttemptView]:
    """Lists the runs of a job, oldest first: when, on which devices, why they ended, and from which step."""
    number = number_after(after)
    with services.store.read() as session:
        found = attempts.list_attempts(session, job_id, caller=caller, after=number, limit=limit)
    return page(AttemptView, found, present.attempt, cursor=lambda shown: str(shown.number))
