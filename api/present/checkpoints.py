"""The views of checkpoints and artifacts."""

from collections.abc import Mapping
from typing import Any

from api.present.times import time, time_or_none
from store.attempts.facts import KeepFacts
from store.output.checkpoints_facts import ArtifactFacts, CheckpointFacts
from torchyard.contract.views.checkpoints import (
    ArtifactView,
    CheckpointFolder,
    CheckpointView,
    KeepView,
)


def checkpoint(facts: CheckpointFacts) -> CheckpointView:
    """Returns the view of a checkpoint."""
    sent = facts.main_file
    return CheckpointView.model_validate(
        {
            "id": facts.id,
            "epoch": facts.epoch,
            "step": facts.step,
            "attempt": facts.attempt,
            "metrics": facts.metrics,
            "files": facts.files,
            "files_omitted": facts.files_omitted,
            "folder": folder(sent),
            "size": sent["size"],
            "sha256": sent["sha256"],
            "aliases": facts.aliases,
            "source": facts.source or "run",
            "damaged": facts.damaged,
            "remeasured": None if facts.remeasured is None else {"metrics": facts.remeasured},
            "created_at": time(facts.created_at),
        }
    )


def folder(sent: Mapping[str, Any]) -> CheckpointFolder | None:
    """Returns the view of what a download sends, if that is a tar of a folder."""
    return CheckpointFolder(path=sent["folder"], files=sent["files"]) if "files" in sent else None


def artifact(facts: ArtifactFacts) -> ArtifactView:
    """Returns the view of a file that a job left."""
    return ArtifactView(
        id=facts.id,
        path=facts.path,
        size=facts.size,
        attempt=facts.attempt,
        sha256=facts.sha256,
        created_at=time(facts.created_at),
    )


def keep(found: KeepFacts) -> KeepView:
    """Returns the view of a request to store files of a working folder."""
    return KeepView(
        paths=list(found.paths),
        attempt=found.attempt,
        requested_at=time(found.requested_at),
        answered_at=time_or_none(found.answered_at),
        refused=found.refused,
        files=found.files,
        size=found.size,
        copied=found.copied,
        worker=found.worker,
        away=found.away,
    )
