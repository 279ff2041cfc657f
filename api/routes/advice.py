"""Says what is the matter with a job and what to do."""

from dataclasses import replace
from datetime import timedelta

from api.access.auth import JobReader
from api.advice.facts import REQUIREMENTS, Facts
from api.advice.judgement import judge
from api.openapi.routers import guarded
from api.parameters.reads import in_turns
from api.present import jobs
from api.present.cluster import worker
from api.present.telemetry import log_line
from api.services import ServicesDep
from store.blobs import Blobs
from store.facts.callers import Caller
from store.queries import advice
from store.queries.advice import AdviceFacts
from torchyard.contract.bundles import digest_in
from torchyard.contract.errors import Unavailable
from torchyard.contract.views.advice import AdviceView
from torchyard.contract.views.jobs import ErrorView, JobView

router = guarded("jobs", Unavailable)


@router.get("/jobs/{job_id}/advice")
@in_turns
def get_advice(services: ServicesDep, caller: JobReader, job_id: str) -> AdviceView:
    """Judges the job as it is now: what is the matter, what shows it, and what to do. Claims nothing without evidence.

    Any text of it may be the job's own.
    """
    facts = _shown(advice.collect(services.store, job_id, caller=caller), caller)
    return judge(replace(facts, has_requirements=_has_requirements(services.store.blobs, facts)))


def _shown(found: AdviceFacts, caller: Caller) -> Facts:
    silence = found.silence_us
    return Facts(
        job=JobView.model_validate_json(jobs.encoded_job(found.job, caller)),
        failure=None if found.failure is None else ErrorView.model_validate(found.failure),
        lines=[*map(log_line, found.lines)],
        workers=[worker(facts, caller) for facts in found.workers],
        silence=None if silence is None else timedelta(microseconds=silence),
        checkpoint_step=found.checkpoint_step,
    )


def _has_requirements(blobs: Blobs, facts: Facts) -> bool:
    """Returns whether the code of a script that misses a module has a requirements.txt, if it is a bundle."""
    if facts.script is None or not facts.misses_module:
        return False
    digest = digest_in(facts.script.code)
    return digest is not None and advice.bundle_has(blobs, digest, REQUIREMENTS)
