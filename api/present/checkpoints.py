"""The views of checkpoints, artifacts and bundles."""

from api.present.times import time, time_or_none
from store.attempts.keeping_facts import KeepFacts
from store.bundles.facts import BundleFacts
from store.bundles.folder import Partial
from torchyard.contract.parts import SharedParts
from torchyard.contract.views.checkpoints import (
    BundleView,
    KeepView,
    SharedPartsView,
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


def bundle(found: BundleFacts | Partial) -> BundleView:
    """Returns the view of a bundle, or of what has arrived of one."""
    if isinstance(found, Partial):
        return BundleView(
            sha256=found.sha256,
            size=found.size,
            files=None,
            state="partial",
            received=found.received,
            created_at=time(found.started_at),
        )
    return BundleView(
        sha256=found.sha256,
        size=found.size,
        files=found.files,
        state="complete",
        received=found.size,
        created_at=time(found.created_at),
        name=found.name,
    )


def shared(run: SharedParts) -> SharedPartsView:
    """Returns the view of parts that need not be sent."""
    return SharedPartsView(index=run.index, count=run.count, source=run.source, start=run.start, size=run.size)
