"""Validates and submits specs, and retries jobs that have ended."""

from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from api.access.auth import JobId, JobReader, JobWriter
from api.openapi.completion import headers, problems
from api.openapi.routers import guarded
from api.parameters.bodies import SpecBody, json_body
from api.parameters.idempotency import Keyed
from api.parameters.reads import in_turns
from api.present import jobs as present
from api.services import Services, ServicesDep
from store.facts.callers import Caller
from store.facts.submission import Retry, Submission, Submitted
from store.queries import submission as queries
from torchyard.contract.errors import Conflict, TooLarge, Unavailable
from torchyard.contract.maximums import within
from torchyard.contract.requests import RetryRequest
from torchyard.contract.spec import Spec
from torchyard.contract.views.jobs import JobView
from torchyard.contract.views.submission import SpecView

router = guarded("jobs")

RetryBody = Annotated[RetryRequest, json_body(RetryRequest, example={"from": "epoch-3"}, required=False)]

_CREATED: dict[int | str, dict[str, Any]] = {
    201: {"model": JobView, "headers": headers("Location", "Idempotent-Replayed")},
    **problems(Unavailable),
}


@router.post("/jobs/validate", responses=problems(Unavailable))
@in_turns
def validate_spec(
    services: ServicesDep,
    caller: JobReader,
    sent: SpecBody,
    place: Annotated[bool, Query(description="also say what the job would wait for")] = False,
) -> SpecView:
    """Returns the spec with every default filled in, or its errors. Nothing is stored.

    With `place`, secrets, GPUs and targets that are not there are errors, too.
    """
    spec = _within_limits(services, sent)
    if not place:
        return SpecView(spec=queries.resolved(services.store, spec, caller=caller))
    settings = services.settings
    spec, prospect = queries.placed(
        services.store, spec, caller=caller, visibility=settings.visibility, max_stop_grace=settings.max_stop_grace
    )
    return SpecView(spec=spec, waits_for=present.prospect(prospect))


@router.post("/jobs", status_code=201, responses=_CREATED)
async def submit_job(services: ServicesDep, caller: JobWriter, sent: SpecBody, keyed: Keyed) -> Response:
    """Submits a job. It is queued when the answer arrives."""
    spec = _within_limits(services, sent)
    visibility = services.settings.visibility
    return _answer(await services.submissions.submit(Submission(spec, caller, visibility, keyed)), caller)


@router.post("/jobs/{job_id}/retry", status_code=201, responses=_CREATED | problems(Conflict, TooLarge))
async def retry_job(
    services: ServicesDep, caller: JobWriter, job_id: JobId, wanted: RetryBody, keyed: Keyed
) -> Response:
    """Submits the spec of a job that has ended as a new job, which goes on from a checkpoint of the old one."""
    return _answer(await services.submissions.submit(Retry(job_id, caller, keyed, wanted.from_)), caller)


def _within_limits(services: Services, spec: Spec) -> Spec:
    return within(spec, services.settings.maximums)


def _answer(made: Submitted, caller: Caller) -> Response:
    job = present.encoded_job(made.job, caller, is_new=not made.replayed)
    headers = {"Location": made.location} | ({"Idempotent-Replayed": "true"} if made.replayed else {})
    return Response(job, status_code=made.status, headers=headers, media_type="application/json")
