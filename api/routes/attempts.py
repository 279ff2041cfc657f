"""Lists the attempts of a job."""

from api.auth.callers import JobReader
from api.openapi.routers import guarded
from api.parameters.paging import AfterNumber, Limit, number_after, page
from api.parameters.reads import in_turns
from api.present.times import time, time_or_none
from api.services import ServicesDep
from store.attempts import history as attempts
from store.jobs.facts import ListedAttempt
from torchyard.contract.attempts.views import AttemptDevice, AttemptEnvironment, AttemptView, StoppedForView
from torchyard.contract.errors import Unavailable
from torchyard.contract.states import EndReason
from torchyard.contract.wire.view import Page

router = guarded("jobs", Unavailable)


@router.get("/jobs/{job_id}/attempts")
@in_turns
def list_attempts(
    *, services: ServicesDep, caller: JobReader, job_id: str, limit: Limit = 100, after: AfterNumber = None
) -> Page[AttemptView]:
    """Lists the attempts of a job, oldest first, each with its times, devices, start step and reason for the end."""
    number = number_after(after)
    with services.store.read() as session:
        listed = attempts.list_attempts(session, job_id, caller=caller, after=number, limit=limit)
    return page(AttemptView, listed, attempt_view, cursor=lambda shown: str(shown.number))


def attempt_view(facts: ListedAttempt) -> AttemptView:
    """Returns the view of a run of a job."""
    ended, other = facts.ended_at, facts.stopped_for
    return AttemptView(
        number=facts.number,
        worker=facts.worker,
        started_at=time(facts.started_at),
        ended_at=time_or_none(ended),
        end_reason=None if facts.end_reason is None else EndReason(facts.end_reason),
        detail=facts.detail,
        start_step=facts.start_step,
        devices=[
            AttemptDevice(
                worker=device.worker,
                index=None if device.known is None else device.known.index,
                uuid=device.uuid,
                node=device.node,
                name=None if device.known is None else device.known.name,
            )
            for device in facts.devices
        ],
        stopped_for=None if other is None else StoppedForView(owner=other.owner, job_id=other.job_id, name=other.name),
        environment=None if facts.environment is None else AttemptEnvironment.model_validate(facts.environment),
        duration_seconds=None if ended is None else (ended - facts.started_at) / 1_000_000,
    )
