"""The view of a request to keep files."""

from api.present.times import time, time_or_none
from store.attempts.keeping_facts import KeepFacts
from torchyard.contract.views.checkpoints import KeepView


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
