"""Reports health and readiness, without a token, and the service's metrics."""

from collections.abc import Callable
import logging
from typing import Any

from fastapi import Request, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from api.auth.callers import FiguresReader
from api.openapi.completion import headers, problems
from api.openapi.routers import unguarded
from api.parameters.reads import in_turns
from api.services import ServicesDep
from store.jobs import queued
from store.queue.announcing import RedisForbids
from store.store import Store
from torchyard.contract.cluster.views import HealthView, ReadyView
from torchyard.contract.errors import Forbidden, NotAuthorized, TooManyRequests, Unavailable

router = unguarded("service")

_NO_ANSWER = "does not answer"
_log = logging.getLogger(__name__)


@router.get("/healthz", summary="Check liveness")
async def is_alive() -> HealthView:
    """Answers while the process runs. Checks nothing else."""
    return HealthView()


_NOT_READY: dict[int | str, dict[str, Any]] = {
    503: {"model": ReadyView, "description": "The database does not answer", "headers": headers("Retry-After")}
}


@router.get("/readyz", summary="Check readiness", responses=_NOT_READY)
def is_ready(services: ServicesDep, response: Response) -> ReadyView:
    """Checks the database and Redis.

    `degraded`: Redis is away, and jobs start later; or Redis denies a command, and `redis` names the rule to add.
    `unavailable` (503): the database is away.
    """
    database = _state("the database", lambda: _check_database(services.store))
    redis = _state("redis", services.store.queue.check)
    if database != "ok":
        response.status_code = 503
        response.headers["Retry-After"] = str(Unavailable.retry_after)
        return ReadyView(status="unavailable", database=database, redis=redis)
    return ReadyView(status="ok" if redis == "ok" else "degraded", database=database, redis=redis)


@router.get(
    "/metrics",
    response_class=PlainTextResponse,
    responses=problems(NotAuthorized, Forbidden, TooManyRequests),
)
@in_turns
def read_figures(request: Request, caller: FiguresReader) -> Response:
    """Returns the service's metrics as Prometheus text. Works without the database."""
    registry: CollectorRegistry = request.app.state.registry
    return Response(generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})


def _state(name: str, ask: Callable[[], None]) -> str:
    try:
        ask()
    except RedisForbids as error:  # it names commands and the service's id alone
        _log.warning("%s %s", name, error.message)
        return error.message
    except Unavailable as error:
        # Anybody may call this, and the reason may name hosts and folders: only the log has it.
        _log.warning("%s is not ready: %s", name, error.message)
        return _NO_ANSWER
    return "ok"


def _check_database(store: Store) -> None:
    with store.read() as session:
        queued.check(session)
