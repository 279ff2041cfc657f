"""Models that a caller may read, and their versions. All of them raise Unavailable, and NotFound."""

from store import pages
from store.db.database import Snapshots
from store.models import rows as models
from store.models.facts import ModelFacts, ModelFilter, ModelVersionFacts
from store.pages import FactPage
from store.team.callers import Caller


def listed(
    store: Snapshots, where: ModelFilter, *, caller: Caller, limit: int, after: tuple[str, str] | None = None
) -> FactPage[ModelFacts]:
    """Returns models by owner and name; with `after`, those behind that owner and name."""
    with store.read() as session:
        return pages.first(models.listed(session, caller, where, limit=limit + 1, after=after), limit)


def get(store: Snapshots, owner: str, name: str, *, caller: Caller) -> ModelFacts:
    """Returns one model."""
    with store.read() as session:
        return models.get(session, caller, owner, name)


def versions(
    store: Snapshots, owner: str, name: str, *, caller: Caller, limit: int, before: int | None = None
) -> FactPage[ModelVersionFacts]:
    """Returns versions of a model, newest first; with `before`, only lower ones."""
    with store.read() as session:
        return pages.first(models.newest_first(session, caller, owner, name, limit=limit + 1, before=before), limit)


def version(store: Snapshots, owner: str, name: str, number: int | None, *, caller: Caller) -> ModelVersionFacts:
    """Returns a version of a model; its newest without a number."""
    with store.read() as session:
        return models.find_version(session, caller, owner, name, number)
