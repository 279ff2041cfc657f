"""Whether the service lives, and whether it can work. Both are open to all."""

from collections.abc import Callable
import logging

from fastapi import APIRouter, Response

from api.services import Parts
from store import jobs
from store.database import Database
from torchyard.errors import Unavailable
from torchyard.views import HealthView, ReadyView

router = APIRouter(tags=["service"])

_SILENT = "does not answer"
_log = logging.getLogger(__name__)


@router.get("/healthz")
def is_alive() -> HealthView:
    return HealthView()


@router.get("/readyz", responses={503: {"model": ReadyView, "description": "The database does not answer"}})
def is_ready(parts: Parts, response: Response) -> ReadyView:
    """`degraded` without Redis: jobs are accepted and start, only later. `unavailable` (503) without the database."""
    database = _state("the database", lambda: _look(parts.database))
    redis = _state("redis", parts.queue.ping)
    if database != "ok":
        response.status_code = 503
        return ReadyView(status="unavailable", database=database, redis=redis)
    return ReadyView(status="ok" if redis == "ok" else "degraded", database=database, redis=redis)


def _state(name: str, ask: Callable[[], None]) -> str:
    try:
        ask()
    except Unavailable as error:
        # Anybody may ask, and the reason may name hosts and folders: it is for the log.
        _log.warning("%s is not ready: %s", name, error.message)
        return _SILENT
    return "ok"


def _look(database: Database) -> None:
    with database.read() as session:
        jobs.queued(session, limit=1)
