"""Says what is the matter with a job and what to do."""

from dataclasses import replace
from datetime import timedelta

from fastapi import APIRouter

from api import present
from api.access.auth import JobReader, visible_job
from api.advice.facts import REQUIREMENTS, Facts
from api.advice.judgement import judge
from api.openapi.completion import problems
from api.parameters.reads import in_turns
from api.services import ServicesDep
from store.blobs import Blobs
from store.db.database import Session
from store.db.tables import Job, Worker
from store.queries import advice
from store.rows import checkpoints, jobs, workers
from store.rows.access import Caller
from torchyard.contract.bundles import digest_in
from torchyard.contract.errors import Unavailable
from torchyard.contract.job import JobState
from torchyard.contract.views.advice import AdviceView
from torchyard.contract.views.jobs import ErrorView

router = APIRouter(tags=["jobs"], responses=problems(Unavailable))


@router.get("/jobs/{job_id}/advice")
@in_turns
def get_advice(services: ServicesDep, caller: JobReader, job_id: str) -> AdviceView:
    """Judges the job as it is now: what is the matter, what shows it, and what to do. Claims nothing without evidence.

    Any text of it may be the job's own.
    """
    with services.store.read() as session:
        facts = _facts(session, visible_job(session, job_id, caller), caller)
    return judge(replace(facts, has_requirements=_has_requirements(services.store.blobs, facts)))


def _facts(session: Session, row: Job, caller: Caller) -> Facts:
    job = present.job(session, row)
    failed = advice.last_failure(session, row) if job.state in {JobState.FAILED, JobState.QUEUED} else None
    failure = None if failed is None else ErrorView.model_validate(failed)
    silence = advice.silence_us(session, row) if job.state == JobState.RUNNING else None
    newest = checkpoints.newest_first(session, row.id, limit=1)
    lines = [] if failure is None else advice.last_lines(session, row, rank=failure.rank)
    seen = _workers(session, row)
    holders = jobs.holding_jobs(session) if seen else {}
    return Facts(
        job=job,
        failure=failure,
        lines=[present.log_line(line) for line in lines],
        workers=[present.worker(worker, alive, holders, caller) for worker, alive in seen],
        silence=None if silence is None else timedelta(microseconds=silence),
        checkpoint_step=newest[0].step if newest else None,
    )


def _has_requirements(blobs: Blobs, facts: Facts) -> bool:
    """Returns whether the code of a script that misses a module has a requirements.txt, if it is a bundle."""
    if facts.script is None or not facts.misses_module:
        return False
    digest = digest_in(facts.script.code)
    return digest is not None and advice.bundle_has(blobs, digest, REQUIREMENTS)


def _workers(session: Session, row: Job) -> list[tuple[Worker, bool]]:
    """Returns those that the judgement is about: all if the job waits for devices, its own if it has some."""
    if row.state == JobState.QUEUED:
        return list(workers.list_all(session))
    own = advice.worker_of(session, row) if row.state in {JobState.STARTING, JobState.RUNNING} else None
    return [] if own is None else [own]
