"""A route answers the same by its list of calls as by FastAPI itself, and is found as FastAPI finds it."""

from collections.abc import AsyncGenerator, Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Path, Query, Request
from fastapi.routing import APIRoute
import pytest
from starlette.responses import Response
from starlette.testclient import TestClient

from api.middleware.layer import Layer
from api.server.routing import Route, Router
from api.settings import Settings
from tests.api.service import ApiFixture
from torchyard.contract.errors import NotFound
from torchyard.contract.wire.view import View

OF_FASTAPI = {
    "POST /v1/jobs/batch",
    "POST /v1/session",
    "GET /v1/stream",
    "GET /v1/jobs/{job_id}/stream",
    "GET /readyz",
    "DELETE /v1/bundles/{sha256}",
    "DELETE /v1/tokens/{token_id}",
    "DELETE /v1/secrets/{name}",
    "DELETE /v1/sessions/{session_id}",
    "DELETE /v1/notifications/targets/{target_id}",
    "DELETE /v1/saved-views",
    "DELETE /v1/workers/{worker_id}",
    "GET /v1/worker/events",
    "DELETE /v1/schedules/{schedule_id}",
    "DELETE /v1/models/{owner}/{name}",
    "DELETE /v1/models/{owner}/{name}/versions/{version}",
    "PUT /v1/quotas/users/{name}",
    "PUT /v1/quotas/roles/{role}",
    "DELETE /v1/quotas/users/{name}",
    "DELETE /v1/quotas/roles/{role}",
}
"""They have a dependency with an end, set headers of an answer that they do not make, or answer nothing."""
calls: list[str] = []


class Seen(View):
    number: int
    names: list[str]
    by: str


async def _caller(request: Request) -> str:
    calls.append("caller")
    return request.headers.get("caller", "nobody")


async def _named(
    caller: Annotated[str, Depends(_caller)], name: Annotated[list[str], Query(max_length=2)]
) -> list[str]:
    calls.append("named")
    if "unknown" in name:
        raise NotFound("there is no such name")
    return [caller, *name]


async def _opened() -> AsyncGenerator[str]:
    calls.append("open")
    yield "opened"
    calls.append("close")


def _declare(router: APIRouter) -> None:
    @router.get("/v1/things/{number}", status_code=202)
    def see(  # pyright: ignore[reportUnusedFunction]
        number: Annotated[int, Path(ge=1)],
        names: Annotated[list[str], Depends(_named)],
        caller: Annotated[str, Depends(_caller)],
    ) -> Seen:
        return Seen(number=number, names=names, by=caller)

    @router.get("/v1/things/all/bytes")
    async def read(caller: Annotated[str, Depends(_caller)]) -> Response:  # pyright: ignore[reportUnusedFunction]
        return Response(caller.encode(), status_code=203)

    @router.get("/v1/{kind}/last")
    async def last(kind: str, opened: Annotated[str, Depends(_opened)]) -> dict[str, str]:  # pyright: ignore[reportUnusedFunction]
        return {kind: opened}

    @router.get("/v1/things/all/sorted")
    async def sort(  # pyright: ignore[reportUnusedFunction]
        request: Request, size: Annotated[int, Query(le=9)] = 1, item: Annotated[list[str] | None, Query()] = None
    ) -> Seen:
        found = [] if item is None else item
        found.append("last")
        return Seen(number=size, names=found, by=request.url.query)

    @router.delete("/v1/things/{number}")
    async def delete(number: int) -> Response:  # pyright: ignore[reportUnusedFunction]
        return Response(status_code=204)


@pytest.fixture(params=[Route, APIRoute], ids=["ours", "of-fastapi"])
def client(request: pytest.FixtureRequest) -> Iterator[TestClient]:
    app = FastAPI(redirect_slashes=False)
    app.router.route_class = request.param
    _declare(app.router)
    if request.param is Route:
        app.middleware_stack = Layer(Router(app.router), Settings(), count=_uncounted)
    calls.clear()
    yield TestClient(app, base_url="http://localhost", raise_server_exceptions=False)


def test_each_dependency_is_called_once_and_after_what_it_needs(client: TestClient) -> None:
    answer = client.get("/v1/things/3?name=a&name=b", headers={"caller": "ada"})
    assert (answer.status_code, answer.json()) == (202, {"number": 3, "names": ["ada", "a", "b"], "by": "ada"})
    assert answer.headers["content-type"] == "application/json"
    assert calls == ["caller", "named"]


def test_a_dependency_with_an_end_is_ended(client: TestClient) -> None:
    assert client.get("/v1/things/last").status_code == 422  # the first route of the path, as its number is not one
    assert client.get("/v1/others/last").json() == {"others": "opened"}
    assert calls[-2:] == ["open", "close"]


def test_a_whole_answer_is_sent_as_it_is(client: TestClient) -> None:
    answer = client.get("/v1/things/all/bytes")
    assert (answer.status_code, answer.content) == (203, b"nobody")


@pytest.mark.parametrize("query", ["", "name=a&name=b&name=c"])
def test_wrong_parameters_call_neither_what_has_them_nor_the_route(client: TestClient, query: str) -> None:
    assert client.get(f"/v1/things/3?{query}").status_code == 422
    assert calls == ["caller"]


def test_an_equal_query_is_answered_as_the_first(client: TestClient) -> None:
    def ask(query: str) -> tuple[int, Any]:
        answer = client.get(f"/v1/things/all/sorted?{query}")
        return answer.status_code, answer.json() if answer.status_code == 200 else len(answer.json())

    asked = [
        "",
        "size=2",
        "size=10",
        "size=x",
        "item=a&item=b",
        "size=3&item=a",
        "size=%32",
        *(f"n={n}" for n in range(40)),
    ]
    first = {query: ask(query) for query in asked}
    assert first["size=2"] == (200, {"number": 2, "names": ["last"], "by": "size=2"})
    assert (first["size=10"][0], first["size=x"][0], first["n=39"][0]) == (422, 422, 200)
    for query in (*reversed(asked), *asked):
        assert ask(query) == first[query]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("DELETE", "/v1/things/3", 204),
        ("PUT", "/v1/things/3", 405),
        ("GET", "/v1/things", 404),
        ("GET", "/v1/things/3/", 404),
        ("GET", "/v1", 404),
        ("GET", "/", 404),
    ],
)
def test_a_route_is_found_by_path_and_method(client: TestClient, method: str, path: str, status: int) -> None:
    assert client.request(method, path).status_code == status


def test_a_route_is_prepared_at_its_first_request_and_no_other_is() -> None:
    app = FastAPI()
    app.router.route_class = Route
    _declare(app.router)
    app.middleware_stack = Layer(Router(app.router), Settings(), count=_uncounted)
    client = TestClient(app, base_url="http://localhost")
    routes = [route for route in app.routes if isinstance(route, Route)]
    for _ in range(2):
        assert client.get("/v1/things/all/bytes").status_code == 203
        assert [route.path for route in routes if "dependant" in vars(route)] == ["/v1/things/all/bytes"]
    assert not hasattr(routes[-1], "nothing")


def test_fastapi_itself_handles_few_routes_of_the_service(service: ApiFixture) -> None:
    routes = [route for route in service.app.routes if isinstance(route, Route)]
    left = {f"{method} {route.path}" for route in routes if not route.is_in_order for method in route.methods or ()}
    assert left == OF_FASTAPI
    assert len(routes) > 4 * len(left)


def test_all_errors_of_an_answer_are_told_together() -> None:
    app = FastAPI()
    app.router.route_class = Route
    _declare(app.router)
    app.middleware_stack = Layer(Router(app.router), Settings(), count=_uncounted)
    answer = TestClient(app, base_url="http://localhost").get("/v1/things/0").json()
    assert [error["field"] for error in answer["errors"]] == ["name", "number"]


def _uncounted(*_: Any) -> None:
    """Counts no request."""
