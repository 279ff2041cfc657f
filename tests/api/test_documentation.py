"""The page that shows the interface. It loads everything from the service itself."""

import base64
import hashlib
from pathlib import Path
import re

from starlette.testclient import TestClient

from tests.api.service import ApiFixture
from tests.rows import each_row

ASSETS = {
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "swagger-ui.css": "text/css; charset=utf-8",
    "favicon-32x32.png": "image/png",
}
GUIDE = Path(__file__).parents[2] / "docs" / "reference" / "rest.md"


def test_the_page_loads_nothing_from_elsewhere(service: ApiFixture) -> None:
    answer = TestClient(service.app).get("/docs/rest")
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    loaded = re.findall(r'(?:src|href|url)(?:=|: )"([^"]*)"', answer.text)
    assert sorted(loaded) == sorted([*(f"rest/{name}" for name in ASSETS), "./", "../openapi.json"])
    assert "//" not in answer.text


def test_the_pages_policy_allows_only_its_own_script(service: ApiFixture) -> None:
    answer = service.client.get("/docs/rest")
    script = re.search(r"<script>(.*?)</script>", answer.text, re.DOTALL)
    assert script is not None
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["Content-Security-Policy"].split(";"))
    assert policy["script-src"] == f"'self' 'sha256-{digest}'"
    assert (policy["default-src"], policy["connect-src"]) == ("'none'", "'self'")
    assert "unsafe" not in answer.headers["Content-Security-Policy"]


@each_row("name", ASSETS)
def test_an_asset_has_its_media_type_and_may_be_cached(service: ApiFixture, name: str) -> None:
    answer = service.client.get(f"/docs/rest/{name}")
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, ASSETS[name])
    assert "max-age" in answer.headers["Cache-Control"]
    assert len(answer.content) == int(answer.headers["Content-Length"]) > 100
    again = service.client.get(f"/docs/rest/{name}", headers={"If-None-Match": answer.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    head = service.client.head(f"/docs/rest/{name}")
    assert (head.status_code, head.headers["Content-Length"], head.content) == (200, str(len(answer.content)), b"")


@each_row("path", ["/docs/rest/__init__.py", "/docs/rest/..%2fmain.py", "/docs/rest/x", "/redoc"])
def test_other_paths_of_the_docs_are_not_found(service: ApiFixture, path: str) -> None:
    assert service.client.get(path).status_code == 404


def test_a_caller_that_has_the_document_gets_304(service: ApiFixture) -> None:
    answer = service.client.get("/openapi.json")
    assert answer.headers["Content-Type"] == "application/json"
    for held in (answer.headers["ETag"], f'"another", {answer.headers["ETag"]}', "*"):
        again = service.client.get("/openapi.json", headers={"If-None-Match": held})
        assert (again.status_code, again.content) == (304, b"")


def test_the_guide_has_every_route_and_no_other(service: ApiFixture) -> None:
    document = service.get("/openapi.json")
    documented = {
        (method, path)
        for methods, path in re.findall(r"`([A-Z, ]+) (/[^`?]*)", GUIDE.read_text())
        for method in methods.split(", ")
    }
    routes = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    assert documented - {("GET", "/docs/rest"), ("GET", "/openapi.json")} == routes


def test_the_guide_has_every_code_of_an_error(service: ApiFixture) -> None:
    examples = [example["value"] for example in service.get("/openapi.json")["components"]["examples"].values()]
    rows = set(re.findall(r"^\| (\d+) \| `(\w+)` \|", GUIDE.read_text(), re.MULTILINE))
    assert {(str(example["status"]), example["code"]) for example in examples} <= rows
