"""Retries a finished job: a new job with the same spec, which resumes from the old one's newest checkpoint."""

from typing import cast

from sqlalchemy import insert
from sqlalchemy.orm import Session

from store.db.tables import Checkpoint, Job
from store.facts.callers import SERVICE, Caller
from store.facts.checkpoints import CheckpointFacts
from store.ids import new_id
from store.rows import access, bundles, checkpoints, gpus, jobs, new_jobs, quotas, secrets
from torchyard.contract.bundles import bundles_of
from torchyard.contract.errors import Conflict
from torchyard.contract.job import JobState
from torchyard.contract.spec import parse_spec
from torchyard.contract.team import Visibility


def retry(session: Session, job_id: str, *, owner: str, caller: Caller = SERVICE) -> Job:
    """Submits the job's spec again for `owner`, with the job's newest checkpoint to resume from.

    The new job has the visibility of the old one. Raises NotFound, also for a job that the caller may not read,
    Conflict for a job that has not ended, InvalidSpec if the spec is not valid any more, and QuotaExceeded.
    """
    # Locked, so that the job and its checkpoint are not deleted meanwhile.
    old = access.lock_readable(session, job_id, caller)
    if not JobState(old.state).terminal:
        raise Conflict(f"job {job_id} is {old.state}; only a job that has ended can be retried")
    spec = parse_spec(old.spec)
    quotas.check_submission(session, owner, devices=spec.resources.total_devices, priority=spec.priority)
    gpus.check(session, spec.resources)
    secrets.check(session, owner, spec)
    named = bundles_of(spec)
    bundles.use(session, owner, named)
    new = new_jobs.submit(session, spec, owner=owner, visibility=cast("Visibility", old.visibility), retry_of=job_id)
    bundles.record_uses(session, {new.id: named})
    newest = checkpoints.newest_first(session, job_id, limit=1)
    if newest:
        _copy_checkpoint(session, newest[0], new.id)
        text = f"continues job {job_id} from step {newest[0].step}"
    else:
        text = f"starts job {job_id} from the beginning: it saved no checkpoint"
    jobs.add_event(session, new.id, type="message", attempt=None, data={"level": "info", "text": text})
    return jobs.get(session, new.id)


def _copy_checkpoint(session: Session, checkpoint: CheckpointFacts, job_id: str) -> None:
    """Lists the checkpoint in the new job as one of attempt 0, before its first. The blobs are shared."""
    kept = ("name", "epoch", "end_of_epoch", "step", "metrics", "monitored", "files")
    values = {column: getattr(checkpoint, column) for column in kept}
    size = sum(file["size"] for file in checkpoint.files)
    session.execute(insert(Checkpoint).values(id=new_id("ckpt"), job_id=job_id, attempt=0, size=size, **values))
