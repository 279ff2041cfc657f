"""Retries a finished job: a new job with the same spec, which resumes from a checkpoint of the old one."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

from sqlalchemy import insert
from sqlalchemy.orm import Session

from store.attempts.facts import Inherits
from store.ids import new_id
from store.jobs import events as job_events
from store.jobs import initial_weights, resume
from store.jobs.facts import BestCheckpoint
from store.jobs.submission import Retry, Submission
from store.output import checkpoints
from store.output.checkpoints_facts import CAPTURED, CheckpointFacts
from store.tables import Checkpoint, Job
from store.team import access
from torchyard.contract.errors import Conflict, TorchyardError
from torchyard.contract.spec.dev import waiting_spec
from torchyard.contract.spec.spec import parse_spec
from torchyard.contract.states import JobState
from torchyard.contract.team.roles import Visibility


def read(session: Session, wanted: Retry) -> Submission:
    """Returns the submission that the retry is. The new job has the visibility of the old one.

    Raises NotFound, also for a job that the caller may not read and for a checkpoint that it does not have, Conflict
    for a job that has not ended, for a recipe that is to wait and for a checkpoint that is not whole, and InvalidSpec
    if the spec is not valid any more.
    """
    # Locked, so that the job and its checkpoint are not deleted meanwhile. Its own source is older, and comes first.
    initial_weights.lock_source_of(session, wanted.job_id)
    return _submission(session, access.lock_readable(session, wanted.job_id, wanted.caller), wanted)


def read_free(session: Session, wanted: Sequence[Submission | Retry]) -> dict[int, Submission]:
    """Returns submissions by their indexes: those in `wanted`, and what `read` returns for retries.

    It waits for nobody: retries for whose job it would wait are left out, and those for which `read` would raise.
    """
    submissions = {index: each for index, each in enumerate(wanted) if isinstance(each, Submission)}
    retries = [(index, each) for index, each in enumerate(wanted) if isinstance(each, Retry)]
    for index, each in sorted(retries, key=lambda retry: retry[1].job_id):
        with suppress(TorchyardError):
            old = access.lock_readable(session, each.job_id, each.caller, waits=False)
            submissions[index] = _submission(session, old, each)
    return dict(sorted(submissions.items()))  # stored in the order in which they came


def go_on(session: Session, made: Sequence[Any], wanted: Sequence[Submission]) -> dict[str, BestCheckpoint]:
    """Has those of the new jobs that are retries go on with what the old ones saved. Returns their best checkpoints.

    `made` are the columns of the new jobs, as `new_jobs.insert_all` returns them.
    """
    modes: dict[str, str] = {}
    for job, each in zip(made, wanted, strict=True):
        if each.retry_of is not None:
            _go_on(session, each.retry_of, each, job.id)
            job.position += 1  # by the event of that
            modes[job.id] = each.spec.checkpoint.mode
    return checkpoints.find_best_of_jobs(session, modes)


def _submission(session: Session, old: Job, wanted: Retry) -> Submission:
    if not JobState(old.state).terminal:
        raise Conflict(f"job {old.id} is {old.state}; only finished jobs can be retried")
    if wanted.dev is not None and old.spec["trainer"] != "script":
        raise Conflict(f"job {old.id} is not a script: it has no working folder")
    visibility = cast("Visibility", old.visibility)
    if wanted.fresh:
        saved = None
    elif wanted.ref is None:
        saved = checkpoints.find_resumed(session, old.id)
    else:
        saved = checkpoints.resolve(session, old, wanted.ref)
        if saved.damaged:
            raise Conflict(f"checkpoint {saved.id} is damaged: no job can continue from it")
    spec = old.spec if wanted.dev is None else waiting_spec(old.spec, wanted.dev)
    return Submission(
        parse_spec(resume.with_devices(spec, wanted.devices)),
        wanted.caller,
        visibility,
        wanted.keyed,
        retry_of=old.id,
        goes_on_from=saved,
        begins_with=_begins_with(old, wanted),
        devices_before=old.spec["resources"]["devices_per_node"],
        trial=wanted.trial,
    )


def _begins_with(old: Job, wanted: Retry) -> Inherits | None:
    """Returns what the new job finds in its working folder. What only the host has is the owner's alone."""
    if wanted.fresh:
        return None
    if wanted.ref is not None:
        return "checkpoint"
    return "folder" if wanted.caller.name == old.owner else "files"


def _go_on(session: Session, old_id: str, made: Submission, job_id: str) -> None:
    saved, before = made.goes_on_from, made.devices_before
    if saved is not None:
        _copy_checkpoint(session, saved, job_id)
        # What a program finds of captured ones its worker tells.
        text = f"retries job {old_id}" if saved.source == CAPTURED else f"continues job {old_id} from step {saved.step}"
    elif made.begins_with is None:
        text = f"starts job {old_id} from the beginning, with its code alone"
    elif made.spec.trainer == "script":
        text = f"retries job {old_id}, which saved no checkpoint"
    else:
        text = f"starts job {old_id} from the beginning: it saved no checkpoint"
    if before is not None:
        text += resume.say_devices(before, made.spec.resources.devices_per_node)
    job_events.append(session, job_id, type="message", attempt=None, data={"level": "info", "text": text})


def _copy_checkpoint(session: Session, checkpoint: CheckpointFacts, job_id: str) -> None:
    """Lists the checkpoint in the new job as one of attempt 0, before its first. The blobs are shared."""
    kept = (
        *("name", "epoch", "end_of_epoch", "step", "metrics", "monitored", "files", "files_bytes"),
        *("sent", "remeasured", "source", "saved_at", "damaged"),
    )
    values = {column: getattr(checkpoint, column) for column in kept}
    size = sum(file["size"] for file in checkpoint.files)
    session.execute(insert(Checkpoint).values(id=new_id("ckpt"), job_id=job_id, attempt=0, size=size, **values))
