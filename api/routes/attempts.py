"""Lists the attempts of a job."""

from fastapi import APIRouter

from api import present
from api.access.auth import JobReader, visible_job
from api.openapi.completion import problems
from api.parameters.paging import AfterNumber, Limit, number_after, page
from api.parameters.reads import in_turns
from api.services import ServicesDep
from store.queries import attempts
from store.queries.attempts import ListedAttempt
from torchyard.contract.errors import Unavailable
from torchyard.contract.job import EndReason
from torchyard.contract.views.attempts import AttemptDevice, AttemptView
from torchyard.contract.views.base import Page

router = APIRouter(tags=["jobs"], responses=problems(Unavailable))


@router.get("/jobs/{job_id}/attempts")
@in_turns
def list_attempts(
    *, services: ServicesDep, caller: JobReader, job_id: str, limit: Limit = 100, after: AfterNumber = None
) -> Page[AttemptView]:
    """Lists the runs of a job, oldest first: when, on which devices, why they ended, and from which step."""
    number = number_after(after)
    with services.store.read() as session:
        visible_job(session, job_id, caller)
        found = attempts.after(session, job_id, number=number, limit=limit + 1)
        views = [_view(listed) for listed in found]
    return page(AttemptView, views, limit=limit, cursor=lambda shown: str(shown.number))


def _view(listed: ListedAttempt) -> AttemptView:
    row = listed.row
    ended = row.ended_at
    return AttemptView(
        number=row.number,
        worker=listed.worker,
        started_at=present.time(row.started_at),
        ended_at=None if ended is None else present.time(ended),
        end_reason=None if row.end_reason is None else EndReason(row.end_reason),
        detail=row.detail,
        start_step=row.start_step,
        devices=[
            AttemptDevice(
                worker=device.worker,
                index=None if device.known is None else device.known.index,
                uuid=device.uuid,
                name=None if device.known is None else device.known.name,
            )
            for device in listed.devices
        ],
        duration_seconds=None if ended is None else (ended - row.started_at) / 1_000_000,
    )
