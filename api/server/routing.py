"""Finds the route of a request, and gives it its arguments, by what was looked up once at the route's first request."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
import inspect
from operator import itemgetter
from threading import RLock
from typing import Any

from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import request_params_to_args
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from fastapi.routing import APIRoute, APIRouter
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, compile_path, get_name
from starlette.types import Receive, Scope, Send

RETURNS_ANSWER = "returns_answer"
"""The attribute of a route's function that returns a whole answer, although its annotation says otherwise."""
_DEPTH = 2
"""Parts of a path by which routes are looked up."""
_preparing = RLock()
"""Held by the one thread that prepares a route."""
_KEPT, _KEPT_BYTES = 32, 512
"""How many queries are kept for each call that has parameters of one, and the longest of them."""


class Router:
    """The routes of a router, looked up by the first parts of the path instead of one after the other."""

    def __init__(self, router: APIRouter) -> None:
        self._router = router
        self._found: dict[str, Sequence[APIRoute]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            for route in self._candidates(scope["path"]):
                match, child_scope = route.matches(scope)
                if match is Match.FULL:
                    scope.update(child_scope)
                    await route.handle(scope, receive, send)
                    return
        await self._router(scope, receive, send)  # another method than the route has, or no route of ours

    def _candidates(self, path: str) -> Sequence[APIRoute]:
        """Returns the routes whose fixed first parts are those of the path, in their order."""
        if not self._found:
            self._found = _by_beginning(self._router)
        return self._found.get(_beginning(path), ())


class Route(APIRoute):
    """A route whose dependencies are put into one order at its first request; each is called once for a request.

    Until then it knows only what finds it: to prepare all routes takes a tenth of a second of a start. FastAPI itself
    handles those with what is rare here: dependencies that are generators or need a thread, and bodies and answers that
    it has to read and to write.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self._prepare: Callable[[], None] | None = partial(self._complete, path, endpoint, **options)
        self.path, self.endpoint = path, endpoint
        self.name: str = options.get("name") or get_name(endpoint)
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)
        self.methods = {method.upper() for method in options.get("methods") or ("GET",)}

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute that is not there yet. Raises AttributeError."""
        with _preparing:
            if (prepare := self.__dict__.get("_prepare")) is not None:
                self._prepare = None  # what asks for it meanwhile, in this thread, gets AttributeError
                prepare()
        if name not in self.__dict__:
            raise AttributeError(f"a route has no {name!r}")
        return self.__dict__[name]

    def _complete(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        steps = _steps(self.dependant) if _answers_itself(self) else None
        self.is_in_order = steps is not None
        """Whether its calls are made in one order, and not by FastAPI itself."""
        if steps is not None:
            self.app = _Handler(self, steps).answer
        else:
            self.app = AsyncExitStackMiddleware(self.app)


@dataclass(frozen=True)
class _Step:
    """One call: a dependency, or the route's own function."""

    dependant: Dependant
    needs: Sequence[tuple[str | None, int]]
    """The names of its parameters that earlier steps are for, with their numbers."""
    query: "_Query"
    optional_headers: Mapping[bytes, str] | None
    """The names of its parameters by those of headers, which are None if absent. None if one is not so."""

    def arguments(self, request: Request, made: Sequence[Any], errors: list[Any]) -> dict[str, Any] | None:
        """Returns its arguments. None if one is wrong, or if an earlier step had wrong ones: the errors are added."""
        declared, before = self.dependant, len(errors)
        arguments = {name: made[number] for name, number in self.needs if name is not None}
        if declared.query_params:
            values, wrong = self.query.read(request.scope["query_string"])
            arguments |= values
            errors += wrong
        for fields, read in ((declared.path_params, _path), (declared.header_params, _headers)):
            if fields and read is _headers and self._has_none_of_its_headers(request):
                arguments |= dict.fromkeys((self.optional_headers or {}).values())
            elif fields:
                values, wrong = request_params_to_args(fields, read(request))
                arguments |= values
                errors += wrong
        for name in (declared.request_param_name, declared.http_connection_param_name):
            if name is not None:
                arguments[name] = request
        return None if len(errors) > before or any(made[number] is _WRONG for _, number in self.needs) else arguments

    def _has_none_of_its_headers(self, request: Request) -> bool:
        """Returns whether there is nothing to check: FastAPI would ask several times for each header that is absent."""
        names = self.optional_headers
        return names is not None and not any(name in names for name, _ in request.scope["headers"])


class _Query:
    """Parameters in a query. Those of the last queries are kept: clients repeat theirs, and checking takes long."""

    def __init__(self, declared: Dependant) -> None:
        self._declared = declared
        self._known: dict[bytes, Mapping[str, Any]] = {}

    def read(self, query: bytes) -> tuple[Mapping[str, Any], Sequence[Any]]:
        """Returns the values, and what is wrong with others."""
        known = self._known.get(query)
        if known is not None:
            return known, ()
        values, errors = request_params_to_args(self._declared.query_params, QueryParams(query))
        # No lists: a route may change its own.
        if not errors and len(query) <= _KEPT_BYTES and not any(isinstance(value, list) for value in values.values()):
            if len(self._known) == _KEPT:
                del self._known[next(iter(self._known))]
            self._known[query] = values
        return values, errors


class _Handler:
    """Answers the requests of a route."""

    def __init__(self, route: APIRoute, steps: Sequence[_Step]) -> None:
        self._steps = steps
        self._status = route.status_code or 200
        self._call: Callable[..., Any] = route.endpoint
        self._is_async = inspect.iscoroutinefunction(route.endpoint)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises RequestValidationError, and what the dependencies and the route raise."""
        request = Request(scope, receive, send)
        made: list[Any] = []
        errors: list[Any] = []
        *dependencies, last = self._steps
        for step in dependencies:
            arguments = step.arguments(request, made, errors)
            assert step.dependant.call is not None
            made.append(_WRONG if arguments is None else await step.dependant.call(**arguments))
        arguments = last.arguments(request, made, errors)
        if arguments is None:
            raise RequestValidationError(errors)
        answer = await (self._call(**arguments) if self._is_async else run_in_threadpool(self._call, **arguments))
        response = answer if isinstance(answer, Response) else self._encoded(answer)
        await response(scope, receive, send)

    def _encoded(self, view: BaseModel) -> Response:
        return Response(view.model_dump_json(), status_code=self._status, media_type="application/json")


_WRONG = object()
"""Stands for what a dependency would have made of wrong parameters."""


def _steps(route: Dependant) -> Sequence[_Step] | None:
    """Returns all calls of a route, each after those that it needs. None if one is of a kind that FastAPI must make."""
    steps: list[_Step] = []
    known: dict[object, int] = {}

    def add(dependant: Dependant) -> int:
        if dependant.call not in known:
            needs = [(inner.name, add(inner)) for inner in dependant.dependencies]
            known[dependant.call] = len(steps)
            steps.append(_Step(dependant, needs, _Query(dependant), _optional_headers(dependant)))
        return known[dependant.call]

    add(route)
    *dependencies, _ = steps
    simple = all(_is_simple(step.dependant) for step in steps)
    return steps if simple and all(_is_async(step.dependant.call) for step in dependencies) else None


def _optional_headers(dependant: Dependant) -> Mapping[bytes, str] | None:
    fields = dependant.header_params
    if any(field.field_info.is_required() or field.get_default() is not None for field in fields):
        return None
    return {field.alias.lower().encode(): field.name for field in fields}


def _is_simple(dependant: Dependant) -> bool:
    rare = (
        *(dependant.cookie_params, dependant.body_params, dependant.response_param_name),
        *(dependant.websocket_param_name, dependant.own_oauth_scopes),
        *(dependant.background_tasks_param_name, dependant.security_scopes_param_name, dependant.concurrency),
        *(inspect.isgeneratorfunction(dependant.call), inspect.isasyncgenfunction(dependant.call)),
    )
    return dependant.use_cache and not any(rare)


def _is_async(call: Any) -> bool:
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(getattr(call, "__call__", None))  # noqa: B004


def _answers_itself(route: APIRoute) -> bool:
    """Returns whether the route returns a whole answer, or a view, whose JSON is the answer."""
    returned = inspect.signature(route.endpoint).return_annotation
    is_known = isinstance(returned, type) and issubclass(returned, (BaseModel, Response))
    return is_known or getattr(route.endpoint, RETURNS_ANSWER, False)


def _by_beginning(router: APIRouter) -> dict[str, Sequence[APIRoute]]:
    routes_by_path = defaultdict[str, list[tuple[int, APIRoute]]](list)
    short: list[tuple[int, APIRoute, str]] = []
    for index, route in enumerate(route for route in router.routes if isinstance(route, APIRoute)):
        part = route.path_format.partition("{")[0]
        routes_by_path[_beginning(part)].append((index, route))
        if part.count("/") <= _DEPTH:  # a longer one begins no other beginning
            short.append((index, route, part))
    for wanted, begun in routes_by_path.items():
        known = {index for index, _ in begun}
        begun += [(index, route) for index, route, part in short if index not in known and wanted.startswith(part)]
        begun.sort(key=itemgetter(0))
    return {wanted: [route for _, route in begun] for wanted, begun in routes_by_path.items()}


def _beginning(path: str) -> str:
    return "/".join(path.split("/", _DEPTH + 1)[: _DEPTH + 1])


def _path(request: Request) -> Any:
    return request.path_params


def _headers(request: Request) -> Any:
    return request.headers
