"""Routers that are complete when their routes are declared: one that is included again prepares each route twice."""

from fastapi import APIRouter
from fastapi.routing import APIRoute

from api.openapi.completion import problems
from api.server.routing import Route
from torchyard.contract.errors import Forbidden, NotAuthorized, TooManyRequests, TorchyardError


def guarded(tag: str, *errors: type[TorchyardError]) -> APIRouter:
    """Returns a router for routes below `/v1` that need a token, and may answer with these errors too."""
    return unguarded(tag, NotAuthorized, Forbidden, TooManyRequests, *errors, prefix="/v1")


def unguarded(tag: str, *errors: type[TorchyardError], prefix: str = "") -> APIRouter:
    """Returns a router for routes that look themselves at who asks."""
    return APIRouter(
        prefix=prefix,
        tags=[tag],
        responses=problems(*errors),
        generate_unique_id_function=operation_id,
        route_class=Route,
    )


def operation_id(route: APIRoute) -> str:
    return f"head_{route.name}" if route.methods == {"HEAD"} else route.name
