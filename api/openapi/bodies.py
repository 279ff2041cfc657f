"""What the dependencies that read bodies declare of them in the OpenAPI document."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, iter_route_contexts
from pydantic import BaseModel
from starlette.routing import BaseRoute

from api.openapi.components import SCHEMA, parameter

F = TypeVar("F", bound=Callable[..., Any])

_ATTRIBUTE = "declared_body"


@dataclass(frozen=True)
class DeclaredBody:
    """A request's body: its description in the document, the schemas that it needs, and the headers beside it."""

    content: dict[str, Any]
    schemas: tuple[type[BaseModel], ...] = ()
    description: str | None = None
    headers: tuple[str, ...] = ()
    required: bool = True

    def add_to(self, operation: dict[str, Any]) -> None:
        """Adds the body to an operation of the document."""
        described = {} if self.description is None else {"description": self.description}
        operation["requestBody"] = {**described, "required": self.required, "content": self.content}
        if self.headers:
            operation["parameters"] = [*operation.get("parameters", []), *map(parameter, self.headers)]


def json(*schemas: type[BaseModel], example: Any, required: bool = True) -> DeclaredBody:
    """Returns the declaration of a body that has one of the schemas."""
    return DeclaredBody(_json([schema.__name__ for schema in schemas], example), schemas, required=required)


def _json(names: list[str], example: Any) -> dict[str, Any]:
    refs = [{"$ref": SCHEMA.format(model=name)} for name in names]
    return {"application/json": {"schema": refs[0] if len(refs) == 1 else {"oneOf": refs}, "example": example}}


SPEC = DeclaredBody(
    _json(["JobSpec-Sent"], {"trainer": "image-classification", "config": {"data": {"source": "digits"}}})
)
TAR = DeclaredBody(
    {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    description="The bytes of the tar from `offset` on",
    headers=("Content-Encoding",),
)


def declares(body: DeclaredBody) -> Callable[[F], F]:
    """Decorates a dependency that reads a body: every route that uses it has the body in the document."""

    def mark(dependency: F) -> F:
        setattr(dependency, _ATTRIBUTE, body)
        return dependency

    return mark


def declared(routes: Sequence[BaseRoute]) -> dict[tuple[str, str], DeclaredBody]:
    """Returns the body of each path and method that has one."""
    bodies: dict[tuple[str, str], DeclaredBody] = {}
    for context in iter_route_contexts(routes):
        route = context.original_route
        body = next(_declared_bodies(route.dependant), None) if isinstance(route, APIRoute) else None
        if body is not None:
            bodies |= {(context.path_format or "", method.lower()): body for method in context.methods or ()}
    return bodies


def _declared_bodies(dependant: Dependant) -> Iterator[DeclaredBody]:
    for each in dependant.dependencies:
        if (body := getattr(each.call, _ATTRIBUTE, None)) is not None:
            yield body
        yield from _declared_bodies(each)
