"""The one dependency by which routes read bodies."""

from collections.abc import Iterator
import gc
import threading
from typing import Annotated, Any
import weakref

from fastapi import FastAPI
from fastapi.routing import APIRoute, iter_route_contexts
from fastapi.testclient import TestClient
import pytest

from api.app import create_app
from api.auth.callers import Principal, authenticate
from api.limits.turns import Turns
from api.middleware.layer import Layer
from api.openapi import bodies
from api.parameters.bodies import json_body
from api.server.routing import Route, Router
from api.settings import Settings
from tests.api.service import TOKEN
from tests.approved import Approved
from torchyard.contract.team.roles import Role
from torchyard.contract.wire import schema
from torchyard.contract.wire.schema import Schema

MOST = 20_000


class Note(Schema):
    """A body."""

    text: str


class _Parsed(dict[str, Any]):
    """A parsed body, of which one can ask whether it is still there."""


class _Services:
    settings = Settings(max_body_bytes=MOST)

    def __init__(self) -> None:
        self.parses = Turns()


def _uncounted(*_: object) -> None:
    """Counts no request."""


@pytest.fixture
def client() -> Iterator[TestClient]:
    app = FastAPI()
    app.router.route_class = Route
    app.state.services = _Services()
    app.dependency_overrides[authenticate] = lambda: Principal("ada", Role.MEMBER)

    @app.post("/notes")
    def take(note: Annotated[Note, json_body(Note, example={"text": "a"})]) -> int:  # pyright: ignore[reportUnusedFunction]
        return len(note.text)

    app.middleware_stack = Layer(Router(app.router), _Services.settings, count=_uncounted)
    yield TestClient(app, base_url="http://localhost")
    app.state.services.parses.close()


def test_a_route_gets_the_body_parsed(client: TestClient) -> None:
    assert client.post("/notes", json={"text": "abc"}).json() == 3


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b'{"text": ', 422),
        (b'{"text": NaN}', 422),
        (b'{"text": 1}', 422),
        (b'{"text": "a", "txet": "b"}', 422),
        (b'{"text": "%b"}' % (b"a" * MOST), 413),
    ],
)
def test_a_wrong_body_is_a_problem(client: TestClient, sent: bytes, status: int, approved: Approved) -> None:
    answer = client.post("/notes", content=sent)
    assert (answer.status_code, answer.json()["status"]) == (status, status)
    assert answer.json()["detail"] == approved.of_row("detail")


@pytest.mark.parametrize(("size", "in_loop"), [(100, True), (300, False), (MOST - 100, False)])
def test_a_body_of_some_hundred_bytes_is_parsed_in_a_turn_of_its_user(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, size: int, in_loop: bool
) -> None:
    threads: list[threading.Thread] = []
    of_json = schema.from_json

    def noted(*args: Any, **kwargs: Any) -> Any:
        threads.append(threading.current_thread())
        return of_json(*args, **kwargs)

    monkeypatch.setattr(schema, "from_json", noted)
    with client:
        loop_thread = client.portal.call(threading.current_thread)  # pyright: ignore[reportOptionalMemberAccess]
        assert client.post("/notes", json={"text": "a" * size}).json() == size
    assert [thread is loop_thread for thread in threads] == [in_loop]
    assert [thread.name.startswith("reads") for thread in threads] == [not in_loop]


def test_a_wrong_body_leaves_the_memory_when_it_is_answered(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[weakref.ref[_Parsed]] = []
    of_json = schema.from_json

    def noted(*args: Any, **kwargs: Any) -> Any:
        found = _Parsed(of_json(*args, **kwargs))
        seen.append(weakref.ref(found))
        return found

    monkeypatch.setattr(schema, "from_json", noted)
    with client:
        gc.disable()
        try:
            assert client.post("/notes", json={"txet": "a" * 300}).status_code == 422
            assert [found() for found in seen] == [None]
        finally:
            gc.enable()


def test_what_a_dependency_declares_is_what_its_route_shows(client: TestClient) -> None:
    app: Any = client.app
    (body,) = bodies.declared(app.routes).values()
    operation: dict[str, Any] = {}
    body.add_to(operation)
    content = operation["requestBody"]["content"]["application/json"]
    assert content == {"schema": {"$ref": "#/components/schemas/Note"}, "example": {"text": "a"}}
    assert body.schemas == (Note,)


def test_no_route_describes_its_body_by_hand() -> None:
    routes = create_app(Settings(token=TOKEN)).routes  # pyright: ignore[reportArgumentType]
    found = [each.original_route for each in iter_route_contexts(routes) if isinstance(each.original_route, APIRoute)]
    assert [route.path for route in found if "requestBody" in (route.openapi_extra or {})] == []
    assert ("/v1/jobs", "post") in bodies.declared(routes)
