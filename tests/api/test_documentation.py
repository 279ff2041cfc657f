"""The page that shows the interface. It loads everything from the service itself."""

import base64
import hashlib
from pathlib import Path
import re

import pytest
from starlette.testclient import TestClient

from store.facts.media import NewMedia
from store.facts.output import NewEvent
from tests.api.service import ApiFixture

ASSETS = {
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "swagger-ui.css": "text/css; charset=utf-8",
    "favicon-32x32.png": "image/png",
}
GUIDE = Path(__file__).parents[2] / "docs" / "api.md"


def test_the_page_loads_nothing_from_elsewhere(service: ApiFixture) -> None:
    answer = TestClient(service.app).get("/docs")
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    loaded = re.findall(r'(?:src|href|url)(?:=|: )"([^"]*)"', answer.text)
    assert sorted(loaded) == sorted([*(f"docs/{name}" for name in ASSETS), "openapi.json"])
    assert "//" not in answer.text


def test_the_pages_policy_allows_only_its_own_script(service: ApiFixture) -> None:
    answer = service.client.get("/docs")
    script = re.search(r"<script>(.*?)</script>", answer.text, re.DOTALL)
    assert script is not None
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["Content-Security-Policy"].split(";"))
    assert policy["script-src"] == f"'self' 'sha256-{digest}'"
    assert (policy["default-src"], policy["connect-src"]) == ("'none'", "'self'")
    assert "unsafe" not in answer.headers["Content-Security-Policy"]


@pytest.mark.parametrize("name", ASSETS)
def test_an_asset_has_its_media_type_and_may_be_cached(service: ApiFixture, name: str) -> None:
    answer = service.client.get(f"/docs/{name}")
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, ASSETS[name])
    assert "max-age" in answer.headers["Cache-Control"]
    assert len(answer.content) == int(answer.headers["Content-Length"]) > 100
    again = service.client.get(f"/docs/{name}", headers={"If-None-Match": answer.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    head = service.client.head(f"/docs/{name}")
    assert (head.status_code, head.headers["Content-Length"], head.content) == (200, str(len(answer.content)), b"")


@pytest.mark.parametrize("path", ["/docs/__init__.py", "/docs/..%2fmain.py", "/docs/x", "/redoc"])
def test_other_paths_of_the_docs_are_not_found(service: ApiFixture, path: str) -> None:
    assert service.client.get(path).status_code == 404


def test_a_caller_that_has_the_document_gets_304(service: ApiFixture) -> None:
    answer = service.client.get("/openapi.json")
    assert answer.headers["Content-Type"] == "application/json"
    again = service.client.get("/openapi.json", headers={"If-None-Match": answer.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_the_guide_has_every_operation_and_every_code(service: ApiFixture) -> None:
    document = service.get("/openapi.json")
    guide = GUIDE.read_text()
    documented = {
        (method, path)
        for methods, path in re.findall(r"`([A-Z, ]+) (/[^`?]*)", guide)
        for method in methods.split(", ")
    }
    operations = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    assert operations <= documented
    assert documented - operations <= {("GET", "/docs"), ("GET", "/openapi.json")}
    for example in document["components"]["examples"].values():
        code, status = example["value"]["code"], example["value"]["status"]
        assert f"| {status} | `{code}` |" in guide


def test_the_guide_names_every_trainer(service: ApiFixture) -> None:
    text = GUIDE.read_text()
    for item in service.get("/v1/trainers")["data"]:
        assert f"`{item['name']}`" in text


def test_the_guide_names_the_kinds_of_events_that_are_listed(service: ApiFixture) -> None:
    claim = service.start(service.submit()["id"])
    documented = [NewEvent("message", {"text": "hello"}, 1), NewEvent("progress", {"step": 1}, 2)]
    saved = service.new_checkpoint(step=1, files={"state.pt": b"bytes"})
    shown = NewMedia("a", "text", 1, 0, data={"text": ""})
    service.record(claim, events=documented, checkpoints=[saved], media=[shown])
    listed = {event["type"] for event in service.get(f"/v1/jobs/{claim.job_id}/events")["data"]}
    sentence = re.search(r"/events` lists what happened, in order: ([a-z, ]+)\.", GUIDE.read_text())
    assert sentence is not None
    names = {"state": "state changes", "message": "messages", "checkpoint": "checkpoints", "media": "media"}
    assert {names[kind] for kind in listed} == set(sentence[1].split(", "))


def test_no_text_says_that_the_first_job_of_the_queue_starts_next(service: ApiFixture) -> None:
    document = service.client.get("/openapi.json").json()
    entry, route = document["components"]["schemas"]["QueueEntry"], document["paths"]["/v1/queue"]["get"]
    for text in (entry["description"], route["description"], GUIDE.read_text()):
        assert "starts next" not in text
        assert "in which they are to start" not in text
