"""Changes of models. Each is one transaction, with its entry of the audit.

All of them raise NotFound and Unavailable.
"""

from store.models import rows as models
from store.models.facts import ModelFacts, ModelVersionFacts, NewVersion
from store.output import checkpoints
from store.store import Store
from store.sweeps import rows as sweeps
from store.team import access, audit
from store.team.callers import Caller
from torchyard.contract.models import ModelRef
from torchyard.contract.team import Visibility


def add(store: Store, wanted: NewVersion) -> tuple[ModelVersionFacts, bool]:
    """Does what `store.models.rows.add` does with a checkpoint of a job that the caller may read."""
    with store.write("model") as session:
        # Locked, so that neither the checkpoint nor the job is removed meanwhile.
        job_id = sweeps.job_named(session, wanted.caller, wanted.job_id, wanted.ref)
        job = access.lock_readable(session, job_id, wanted.caller)
        checkpoint = checkpoints.resolve(session, job, wanted.ref)
        kept, is_new = models.add(session, job, checkpoint, wanted)
        if is_new:
            audit.add(session, wanted.caller, "model.add", f"{kept.ref} of {job.id}/{checkpoint.id}")
        return kept, is_new


def share(store: Store, owner: str, name: str, visibility: Visibility, *, caller: Caller) -> ModelFacts:
    """Changes who may read a model, and returns it. Raises Forbidden."""
    with store.write("model") as session:
        changed = models.share(session, caller, owner, name, visibility)
        audit.add(session, caller, "model.change", f"{owner}/{name} {visibility}")
        return changed


def remove(store: Store, owner: str, name: str, version: int | None = None, *, caller: Caller) -> None:
    """Removes a version of a model, or the model with all its versions. Raises Forbidden."""
    with store.write("model") as session:
        models.remove(session, caller, owner, name, version)
        audit.add(session, caller, "model.delete", str(ModelRef(owner, name, version)))
