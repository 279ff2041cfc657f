"""Validates and submits specs, and retries jobs that have ended."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

from fastapi import Query, Request
from starlette.responses import Response

from api import forecasts
from api.auth.callers import JobId, JobReader, JobWriter
from api.openapi.completion import headers, problems
from api.openapi.routers import guarded
from api.parameters.bodies import SpecBody, json_body
from api.parameters.forecasts import AsksForecast, if_possible, in_turns_of_forecasts
from api.parameters.idempotency import Keyed
from api.parameters.reads import Parts
from api.present import jobs as present
from api.present.forecasts import prospect as prospect_view
from api.present.times import time
from api.services import Services, ServicesDep
from scheduling.snapshot import Waiting
from store.jobs import prospects, validate
from store.jobs.facts import JobFacts
from store.jobs.prospects import Ahead, Forecast
from store.jobs.submission import Prospect, Retry, Submission, Submitted
from store.team.callers import Caller
from torchyard.contract.errors import Conflict, TooLarge, Unavailable
from torchyard.contract.jobs.requests import RetryRequest
from torchyard.contract.jobs.submissions import ProspectView, SpecView
from torchyard.contract.jobs.views import JobView
from torchyard.contract.spec.maximums import require_within, within
from torchyard.contract.spec.spec import Spec
from torchyard.contract.states import WAITS_FOR_JOBS, Reason

router = guarded("jobs")

RetryBody = Annotated[RetryRequest, json_body(RetryRequest, example={"from": "epoch-3"}, required=False)]

_CREATED: dict[int | str, dict[str, Any]] = {
    201: {"model": JobView, "headers": headers("Location", "Idempotent-Replayed")},
    **problems(Unavailable),
}


@router.post("/jobs/validate", response_model=SpecView, responses=problems(Unavailable))
@in_turns_of_forecasts
def validate_spec(
    services: ServicesDep,
    caller: JobReader,
    sent: SpecBody,
    *,
    place: Annotated[bool, Query(description="also answer what the job would wait for")] = False,
    forecast: AsksForecast = False,
) -> Parts[SpecView]:
    """Checks a job spec and returns it with all defaults. Stores nothing.

    With `place` or `forecast`, it also checks that the secrets, GPUs and notification channels exist.
    """
    store, spec = services.store, _within_limits(services, sent)
    if not (place or forecast):
        if validate.needs_store(spec):
            with store.read() as session:
                spec = validate.resolve_spec(session, spec, caller=caller)
        return SpecView(spec=spec)
    visibility, grace = services.settings.visibility, services.settings.max_stop_grace
    budget = forecasts.budget()
    with budget.counted(), store.read() as session:
        spec, foresight = validate.foresee(session, spec, caller=caller, visibility=visibility, max_stop_grace=grace)
        first_run = None if spec.schedule is None else time(validate.find_first_run(session, spec.schedule))
    if not forecast:
        return SpecView(spec=spec, waits_for=prospect_view(foresight.prospect), first_run_at=first_run)
    yield
    forecasted = yield from forecasts.forecast(foresight, budget, read=_ahead(services))
    return SpecView(spec=spec, waits_for=prospect_view(foresight.prospect, forecasted), first_run_at=first_run)


@router.post("/jobs", status_code=201, responses=_CREATED)
async def submit_job(
    request: Request,
    services: ServicesDep,
    caller: JobWriter,
    sent: SpecBody,
    keyed: Keyed,
    *,
    forecast: AsksForecast = False,
) -> Response:
    """Submits a job. The job is queued when the answer arrives."""
    spec = _within_limits(services, sent)
    visibility = services.settings.visibility
    submitted = await services.submissions.submit(Submission(spec, caller, visibility, keyed))
    if not forecast or submitted.replayed:
        return _answer(submitted, caller)
    foreseen = await if_possible(request, services, caller, _foreseen(services, submitted.job))
    if foreseen is None:
        return _answer(submitted, caller)
    answered = replace(submitted, job=replace(submitted.job, estimate=foreseen[1].estimate or submitted.job.estimate))
    return _answer(answered, caller, prospect_view(*foreseen))


@router.post("/jobs/{job_id}/retry", status_code=201, responses=_CREATED | problems(Conflict, TooLarge))
async def retry_job(
    services: ServicesDep, caller: JobWriter, job_id: JobId, wanted: RetryBody, keyed: Keyed
) -> Response:
    """Submits the spec of a finished job as a new job. The new job resumes from a checkpoint of the old one."""
    if wanted.dev is not None:
        require_within(wanted.dev, services.settings.maximums)
    retry = Retry(job_id, caller, keyed, wanted.from_, devices=wanted.devices, fresh=wanted.fresh, dev=wanted.dev)
    return _answer(await services.submissions.submit(retry), caller)


def _within_limits(services: Services, spec: Spec) -> Spec:
    return within(spec, services.settings.maximums)


def _foreseen(services: Services, job: JobFacts) -> Parts[tuple[Prospect, Forecast]]:
    """Returns what a job waits for that was stored just now. It may have started meanwhile."""
    budget = forecasts.budget()
    with budget.counted(), services.store.read() as session:
        foresight = prospects.of_job(session, job.id, max_stop_grace=services.settings.max_stop_grace)
    yield
    if foresight is None:
        reason = Reason(job.reason.code, job.reason.message)
        return Prospect(reason if reason.code == WAITS_FOR_JOBS else None), Forecast()
    return foresight.prospect, (yield from forecasts.forecast(foresight, budget, read=_ahead(services)))


def _ahead(services: Services) -> Callable[[Waiting], Ahead]:
    def read(job: Waiting) -> Ahead:
        with services.store.read() as session:
            return prospects.find_ahead(session, job, max_stop_grace=services.settings.max_stop_grace)

    return read


def _answer(made: Submitted, caller: Caller, prospect: ProspectView | None = None) -> Response:
    job = present.encoded_job(made.job, caller, is_new=not made.replayed)
    if prospect is not None:
        job = b'%s,"waits_for":%s}' % (job[:-1], prospect.model_dump_json().encode())
    headers = {"Location": f"/v1/jobs/{made.job.id}"} | ({"Idempotent-Replayed": "true"} if made.replayed else {})
    return Response(job, status_code=201, headers=headers, media_type="application/json")
