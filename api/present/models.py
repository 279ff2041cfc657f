"""The views of models."""

from typing import Any, cast

from api.present.checkpoints import folder
from api.present.times import time
from store.models.facts import ModelFacts, ModelVersionFacts
from torchyard.contract.team import Visibility
from torchyard.contract.views.models import ModelVersionSummary, ModelVersionView, ModelView


def model(facts: ModelFacts) -> ModelView:
    """Returns the view of a model."""
    return ModelView(
        owner=facts.owner,
        name=facts.name,
        visibility=cast("Visibility", facts.visibility),
        versions=facts.versions,
        stored_bytes=facts.size,
        newest=summary(facts.newest),
    )


def summary(facts: ModelVersionFacts) -> ModelVersionSummary:
    """Returns the view of a version, as lists show it."""
    return ModelVersionSummary.model_validate(_values(facts))


def version(facts: ModelVersionFacts) -> ModelVersionView:
    """Returns the view of a version."""
    return ModelVersionView.model_validate(_values(facts) | {"card": facts.card})


def _values(facts: ModelVersionFacts) -> dict[str, Any]:
    sent = facts.main_file
    return {
        "owner": facts.owner,
        "name": facts.name,
        "version": facts.version,
        "trainer": facts.trainer,
        "job_id": facts.job_id if facts.shows_job else None,
        "checkpoint_id": facts.checkpoint_id if facts.shows_job else None,
        "epoch": facts.epoch,
        "step": facts.step,
        "metrics": facts.metrics,
        "files": facts.files,
        "files_omitted": facts.files_omitted,
        "folder": folder(sent),
        "size": sent["size"],
        "sha256": sent["sha256"],
        "stored_bytes": facts.size,
        "created_at": time(facts.created_at),
    }
