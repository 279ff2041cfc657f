"""Builds the FastAPI application."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from anyio import to_thread
from fastapi import FastAPI
from starlette.routing import BaseRoute

from api import docsite, website
from api.middleware.layer import Layer
from api.monitoring import Monitoring
from api.openapi import completion, documentation, routers
from api.origins.gate import Gate
from api.origins.terminal import POLICY, Terminal
from api.routes import (
    advice,
    artifacts,
    attempts,
    batches,
    bundles,
    checkpoints,
    cluster,
    code,
    curves,
    health,
    installs,
    jobs,
    joining,
    keeping,
    logs,
    media,
    models,
    notifications,
    origins,
    quotas,
    reach_streams,
    reaches,
    saved_views,
    schedules,
    secrets,
    session,
    stacks,
    stars,
    stream,
    submission,
    sweeps,
    team,
    telemetry,
    usage,
    worker_blobs,
    worker_events,
    worker_verbs,
)
from api.server.routing import Route, Router
from api.services import THREADS, Services
from api.settings import Settings
from torchyard.contract.errors import ConfigError
from torchyard.host.listening import check_token


def create_app(settings: Settings, *, page_folder: Path = website.BUILT, docs_folder: Path = docsite.BUILT) -> FastAPI:
    """Returns the application, which has connected to nothing yet. Raises ConfigError if the token cannot be used."""
    services = Services.of(settings, token=token_of(settings))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        to_thread.current_default_thread_limiter().total_tokens = THREADS
        yield
        services.close()

    monitoring = Monitoring(services)
    app = _Application(
        title="Torchyard",
        version="1",
        summary="Submits, watches and serves distributed PyTorch training jobs.",
        lifespan=lifespan,
        generate_unique_id_function=routers.operation_id,
        redirect_slashes=False,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        description=completion.DESCRIPTION,
        openapi_tags=completion.TAGS,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # each request would ask who collects it
    )
    app.state.services = services
    app.state.registry = monitoring.registry
    app.router.route_class = Route
    app.router.routes.extend(_routes())
    documentation.install(app)
    docsite.install(app, docs_folder)
    monitoring.know(app.routes)
    website.install(app, page_folder)
    layer = Layer(Router(app.router), settings, count=monitoring.count)
    page = website.Website(page_folder / website.TERMINAL, policy=POLICY)
    app.middleware_stack = Gate(layer, services, Terminal(services, page))
    return app


def token_of(settings: Settings) -> str:
    """Returns the bootstrap administrator's token. Raises ConfigError if it cannot be used."""
    token = settings.token.get_secret_value() if settings.token is not None else ""
    if not token:
        raise ConfigError("TORCHYARD_TOKEN is not set: it is the token that users of the API must send")
    check_token(token, host=settings.host, source="TORCHYARD_TOKEN")
    return token


def _routes() -> list[BaseRoute]:
    """Returns the routes, which no setting changes: FastAPI prepared them when they were declared."""
    contents = (
        attempts,
        stream,
        telemetry,
        curves,
        logs,
        stacks,
        stars,
        checkpoints,
        artifacts,
        keeping,
        media,
        code,
        reaches,
        origins,
    )
    areas = (
        submission,
        batches,
        jobs,
        advice,
        schedules,
        sweeps,
        *contents,
        models,
        bundles,
        worker_blobs,
        cluster,
        usage,
        team,
        quotas,
        secrets,
        saved_views,
        notifications,
        session,
        worker_verbs,
        worker_events,
        joining,
        installs,
        health,
    )
    return [*(route for area in areas for route in area.router.routes), *reach_streams.routes]


class _Application(FastAPI):
    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            self.openapi_schema = completion.completed(super().openapi(), self.routes)
        return self.openapi_schema
