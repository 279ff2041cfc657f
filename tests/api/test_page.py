"""The page that a browser loads, at the root of a host and below a path of a proxy."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
import re
import threading
from urllib.parse import urljoin

import httpx2
import pytest
from starlette.testclient import TestClient

from api.app import create_app
from api.middleware.browsers import SECURITY_HEADERS
from tests.api.pages import ASSETS, INDEX, SCRIPT, build_page
from tests.api.service import TOKEN, ApiFixture
from tests.api.serving import api_thread
from tests.api.whole_answers import WholeAnswers
from tests.rows import each_row

ADDRESSES = (
    "/",
    "/jobs",
    "/jobs/job_0197f3c2a9b47c1e8d20f6b1c4e5a703",
    "/jobs/x/logs",
    "/sweeps",
    "/sweeps/swp_0197f3c2a9b47c1e8d20f6b1c4e5a703",
    "/schedules",
    "/compare",
    "/models",
    "/settings",
    "/submit",
    "/workers",
    "/workers/wrk_0197f3c2a9b47c1e8d20f6b1c4e5a703",
    "/login",
)
SCRIPT_PATH = "/assets/index-BxK3a9Zq.js"


@pytest.fixture
def browser(service: ApiFixture, tmp_path: Path) -> Iterator[TestClient]:
    """A client without a credential, of a service whose page is built."""
    app = create_app(service.settings, page_folder=build_page(tmp_path))
    with WholeAnswers(app, headers={"Accept-Encoding": "identity"}) as client:
        yield client


@each_row("path", ADDRESSES)
def test_each_address_is_the_page_and_finds_its_assets(browser: TestClient, path: str) -> None:
    answer = browser.get(path)
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert_assets_load(browser, path, answer.text)
    again = browser.get(path, headers={"If-None-Match": answer.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["Content-Security-Policy"] == answer.headers["Content-Security-Policy"]
    head = browser.head(path)
    assert (head.status_code, head.content, head.headers["ETag"]) == (200, b"", answer.headers["ETag"])


@each_row("path", ["/nope", "/runs/job_1", "/dashboard", "/index.html"])
def test_a_browser_at_an_address_that_is_none_gets_the_page_which_says_so(browser: TestClient, path: str) -> None:
    opened = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    answer = browser.get(path, headers=opened)
    assert (answer.status_code, answer.headers["Content-Type"]) == (404, "text/html; charset=utf-8")
    assert answer.headers["Content-Security-Policy"] == browser.get("/").headers["Content-Security-Policy"]
    assert_assets_load(browser, path, answer.text)
    assert browser.post(path, headers=opened).headers["Content-Type"] == "application/problem+json"


@each_row("path", ["/v1/nope", "/assets/none.js"])
def test_below_the_api_and_the_assets_a_browser_gets_the_error_itself(browser: TestClient, path: str) -> None:
    answer = browser.get(path, headers={"Accept": "text/html"})
    assert (answer.status_code, answer.headers["Content-Type"]) == (404, "application/problem+json")


def test_a_slash_in_a_name_leads_to_the_assets_as_a_browser_counts(browser: TestClient) -> None:
    for path in ("/jobs/a%2Fb", "/jobs/a/b"):
        assert_assets_load(browser, path, browser.get(path).text)


def test_the_page_may_only_load_from_its_service(browser: TestClient) -> None:
    headers = browser.get("/jobs").headers
    policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
    assert policy == {
        "default-src": "'none'",
        **dict.fromkeys(("script-src", "style-src", "font-src", "connect-src", "worker-src", "manifest-src"), "'self'"),
        "img-src": "'self' data: blob:",
        **dict.fromkeys(("base-uri", "form-action", "frame-ancestors"), "'none'"),
    }
    own = {b"content-security-policy", b"cache-control"}
    for name, value in SECURITY_HEADERS:
        assert headers[name.decode()] == value.decode() or name in own
    assert headers["Cache-Control"] == "no-cache"


@each_row("name", ASSETS)
def test_an_asset_has_its_type_and_never_changes(browser: TestClient, name: str) -> None:
    content, media_type = ASSETS[name]
    answer = browser.get(f"/assets/{name}")
    assert (answer.status_code, answer.content, answer.headers["Content-Type"]) == (200, content, media_type)
    assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    # A worker may do what the policy of its script allows, whatever the page may.
    assert answer.headers["Content-Security-Policy"] == browser.get("/").headers["Content-Security-Policy"]
    again = browser.get(f"/assets/{name}", headers={"If-None-Match": answer.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_a_file_whose_name_says_nothing_of_its_content_is_asked_for_again(service: ApiFixture, tmp_path: Path) -> None:
    folder = build_page(tmp_path)
    (folder / "assets" / "robots.txt").write_text("hello")
    answer = TestClient(create_app(service.settings, page_folder=folder)).get("/assets/robots.txt")
    assert (answer.text, answer.headers["Cache-Control"]) == ("hello", "public, no-cache")


def test_a_newer_build_is_shown_at_the_next_request(service: ApiFixture, tmp_path: Path) -> None:
    folder = build_page(tmp_path)
    with TestClient(create_app(service.settings, page_folder=folder)) as client:
        first = client.get("/")
        (folder / "assets" / "index-N3wN3w12.js").write_bytes(b"new")
        (folder / SCRIPT_PATH[1:]).unlink()
        (folder / "index.html").write_text(INDEX.replace("index-BxK3a9Zq.js", "index-N3wN3w12.js"))
        again = client.get("/", headers={"If-None-Match": first.headers["ETag"]})
        assert (again.status_code, "index-N3wN3w12.js" in again.text) == (200, True)
        assert client.get("/assets/index-N3wN3w12.js").text == "new"
        assert client.get(SCRIPT_PATH).content == SCRIPT  # for tabs that loaded the build before
        (folder / "index.html").unlink()
        assert client.get("/").status_code == 404
        assert client.get("/assets/index-N3wN3w12.js").status_code == 404
        (folder / "index.html").write_text(INDEX)
        assert client.get("/").status_code == 200


def test_a_large_script_is_compressed_for_those_who_accept_it(browser: TestClient) -> None:
    small = browser.get(SCRIPT_PATH, headers={"Accept-Encoding": "gzip"})
    assert (small.headers["Content-Encoding"], small.content) == ("gzip", SCRIPT)
    assert int(small.headers["Content-Length"]) < len(SCRIPT) / 10
    plain = browser.get(SCRIPT_PATH)
    assert "Content-Encoding" not in plain.headers
    assert plain.headers["Vary"] == small.headers["Vary"] == "Accept-Encoding"


@each_row(
    "path",
    [
        "/assets/",
        "/assets/none.js",
        "/assets/../index.html",
        "/assets/%2e%2e/%2e%2e/secret.txt",
        "/assets/..%2f..%2fsecret.txt",
        "/assets//etc/passwd",
        "/assets/%00",
        "/index.html",
        "/secret.txt",
        "/nothing",
        "/comparex",
    ],
)
def test_no_other_path_is_a_page_or_a_file(browser: TestClient, path: str) -> None:
    # As raw bytes: the client would resolve the dots itself.
    answer = browser.get(httpx2.URL("http://testserver").copy_with(raw_path=path.encode()))
    assert (answer.status_code, answer.headers["Content-Type"]) == (404, "application/problem+json")


def test_the_page_takes_nothing_from_the_interface(browser: TestClient) -> None:
    assert browser.get("/v1/jobs").json()["code"] == "not_authorized"
    assert browser.get("/v1/nothing").headers["Content-Type"] == "application/problem+json"
    assert browser.post("/jobs").status_code == 405
    assert browser.get("/healthz").json() == {"status": "ok"}


def test_a_service_without_the_page_says_how_to_build_it(service: ApiFixture, tmp_path: Path) -> None:
    with TestClient(create_app(service.settings, page_folder=tmp_path / "none")) as client:
        for path in ADDRESSES:
            answer = client.get(path)
            assert (answer.status_code, answer.headers["Content-Type"]) == (404, "text/html; charset=utf-8")
            assert "<code>make up</code>" in answer.text and "script" not in answer.text
        assert client.get(SCRIPT_PATH).status_code == 404
        assert client.get("/v1/me", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
        build_page(tmp_path)
    with TestClient(create_app(service.settings, page_folder=tmp_path / "static")) as client:
        assert client.get("/").text == INDEX


def test_the_page_works_below_a_path_of_a_proxy(
    service: ApiFixture, tmp_path: Path, database_url: str, redis_url: str
) -> None:
    settings = {"trusted_proxies": "127.0.0.1"}
    with (
        api_thread(tmp_path, database_url, redis_url, page_folder=build_page(tmp_path), **settings) as upstream,
        stripping_proxy(upstream, "/a/b") as proxy,
        httpx2.Client(base_url=proxy, trust_env=False) as browser,
    ):
        for path in (ADDRESSES[0], "/jobs/x/logs"):
            answer = browser.get(f"/a/b{path}")
            assert answer.status_code == 200
            assert_assets_load(browser, f"/a/b{path}", answer.text)
        opened = browser.post("/a/b/v1/session", json={"token": TOKEN}, headers={"Origin": proxy})
        assert opened.status_code == 200
        own = {"X-CSRF-Token": opened.json()["csrf"]}
        assert browser.get("/a/b/v1/me", headers=own).json()["name"] == opened.json()["name"]
        changed = {"Origin": proxy, "X-CSRF-Token": opened.json()["csrf"]}
        assert browser.delete("/a/b/v1/session", headers=changed).status_code == 204
        code = browser.post("/a/b/v1/session/codes", headers={"Authorization": f"Bearer {TOKEN}"})
        assert (code.status_code, code.json()["code"]) == (403, "forbidden")


def assert_assets_load(browser: TestClient | httpx2.Client, path: str, html: str) -> None:
    """Resolves the references of the page as a browser does."""
    references = re.findall(r'(?:src|href)="([^"]*)"', html)
    assert len(references) == 3
    for reference in references:
        assert reference.startswith("."), "an absolute path would leave the proxy's folder"
        found = browser.get(urljoin(f"http://host{path}", reference).removeprefix("http://host"))
        assert (found.status_code, found.headers["Content-Type"]) == (200, ASSETS[reference.rpartition("/")[2]][1])


@contextmanager
def stripping_proxy(upstream: str, prefix: str) -> Generator[str]:
    """The URL of a proxy that forwards what is below `prefix` without it, as nginx does in the docs."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self) -> None:
            assert self.path.startswith(f"{prefix}/")
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {**dict(self.headers.items()), "X-Forwarded-For": self.client_address[0]}
            with httpx2.Client(trust_env=False) as client:
                answer = client.request(
                    self.command, upstream + self.path.removeprefix(prefix), content=body, headers=headers
                )
            self.send_response(answer.status_code)
            for name, value in answer.headers.multi_items():
                if name not in {"content-encoding", "content-length", "connection", "date"}:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        do_GET = do_POST = do_DELETE = forward

        def log_message(self, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
            """Keeps the test's output clean."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as proxy:
        proxy.daemon_threads = True
        thread = threading.Thread(target=proxy.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{proxy.server_address[1]}"
        finally:
            proxy.shutdown()
            thread.join()
