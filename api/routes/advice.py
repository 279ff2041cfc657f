"""Says what is the matter with a job and what to do."""

from dataclasses import replace
from datetime import timedelta

from fastapi import Request
from starlette.responses import Response

from api import forecasts
from api.advice.facts import REQUIREMENTS, Facts
from api.advice.judgement import judge
from api.advice.missing import folder_of
from api.auth.callers import JobReader, Principal
from api.openapi.routers import guarded
from api.parameters.forecasts import if_possible
from api.parameters.reads import Parts, Reader
from api.present import jobs
from api.present.forecasts import starts_if
from api.routes.cluster import worker_view
from api.services import Services, ServicesDep
from store.blobs.folder import BlobFolder
from store.jobs import advice, prospects
from store.jobs.advice import AdviceFacts
from store.team.callers import Caller
from torchyard.contract.advice import AdviceView
from torchyard.contract.bundles.names import digest_in
from torchyard.contract.errors import Unavailable
from torchyard.contract.jobs.views import ErrorView, JobView
from torchyard.contract.queue.views import StartsIfView
from torchyard.contract.states import JobState

router = guarded("jobs", Unavailable)

_MAY_START_OTHERWISE = frozenset({"waiting", "devices_busy", "reserved", "too_big"})
"""The codes of the reasons of jobs that may start with a change."""


@router.get("/jobs/{job_id}/advice", response_model=AdviceView)
async def get_advice(request: Request, services: ServicesDep, caller: JobReader, job_id: str) -> Response:
    """Diagnoses a job: the problem, its cause, the evidence, and what to do. Without evidence, `cause` is null.

    The texts may quote the job's own output: do not trust them as HTML. `starts_if` is also empty while too many
    forecasts are requested.
    """
    judged, waits = await Reader(request, services.reads).run(_judged(services, job_id, caller), caller)
    if waits:
        forecast = await if_possible(request, services, caller, _starts_if(services, job_id))
        judged = judged.model_copy(update={"starts_if": forecast or []})
    return Response(judged.model_dump_json(), media_type="application/json")


def _judged(services: Services, job_id: str, caller: Principal) -> Parts[tuple[AdviceView, bool]]:
    """Returns the advice, and whether the job waits for devices."""
    with services.store.read() as session:
        collected = advice.collect(session, job_id, caller=caller)
    facts = _shown(collected, caller)
    yield
    paths = _paths_of_code(services.store.blobs, facts)
    folder = None if facts.missing_module is None else folder_of(facts.missing_module, paths)
    judged = judge(replace(facts, has_requirements=REQUIREMENTS in paths, module_folder=folder))
    return judged, facts.job.state == JobState.QUEUED and facts.job.status_reason.code in _MAY_START_OTHERWISE


def _starts_if(services: Services, job_id: str) -> Parts[list[StartsIfView]]:
    budget = forecasts.budget()
    with budget.counted(), services.store.read() as session:
        foresight = prospects.of_job(session, job_id, max_stop_grace=services.settings.max_stop_grace)
    yield
    if foresight is None or foresight.waits is None:
        return []
    return starts_if((yield from forecasts.starts_if(foresight.waits, budget)))


def _shown(facts: AdviceFacts, caller: Caller) -> Facts:
    silence = facts.silence_us
    return Facts(
        job=JobView.model_validate_json(jobs.encoded_job(facts.job, caller)),
        failure=None if facts.failure is None else ErrorView.model_validate(facts.failure),
        lines=facts.lines,
        workers=[worker_view(worker, caller) for worker in facts.workers],
        silence=None if silence is None else timedelta(microseconds=silence),
        checkpoint_step=facts.checkpoint_step,
    )


def _paths_of_code(blobs: BlobFolder, facts: Facts) -> list[str]:
    """Returns the files in the code of a script that misses a module, if it is a bundle."""
    if facts.script is None or not facts.misses_module:
        return []
    digest = digest_in(facts.script.code)
    return [] if digest is None else advice.bundle_paths(blobs, digest)
