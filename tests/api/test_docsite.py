"""The site of the docs: its pages and files, and nothing else, to anybody."""

from collections.abc import Iterator
from pathlib import Path
import shutil
from urllib.parse import urljoin

import httpx2
import pytest
from starlette.testclient import TestClient

from api.app import create_app
from tests.api.pages import DOCS, build_docs, build_page
from tests.api.service import ApiFixture
from tests.api.test_documentation import ASSETS
from tests.api.whole_answers import WholeAnswers
from tests.rows import each_row

HTML, TEXT = "text/html; charset=utf-8", "text/plain; charset=utf-8"


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    return build_docs(tmp_path)


@pytest.fixture
def browser(service: ApiFixture, docs: Path, tmp_path: Path) -> Iterator[TestClient]:
    """A client without a credential, of a service whose page and docs are built."""
    app = create_app(service.settings, page_folder=build_page(tmp_path), docs_folder=docs)
    with WholeAnswers(app, headers={"Accept-Encoding": "identity"}) as client:
        yield client


@each_row(
    "path, name, media_type",
    [
        ("", "README.html", HTML),
        ("sweeps.html", "sweeps.html", HTML),
        ("sweeps", "sweeps.html", HTML),
        ("operating/", "operating/README.html", HTML),
        ("_static/site.css", "_static/site.css", "text/css; charset=utf-8"),
        ("searchindex.js", "searchindex.js", "text/javascript; charset=utf-8"),
        ("source/docs/decisions/0001-first.md.txt", "source/docs/decisions/0001-first.md.txt", TEXT),
    ],
)
def test_each_file_of_the_site_is_answered_and_revalidated(
    browser: TestClient, path: str, name: str, media_type: str
) -> None:
    answer = browser.get(f"/docs/{path}")
    assert (answer.status_code, answer.text, answer.headers["Content-Type"]) == (200, DOCS[name], media_type)
    assert answer.headers["Cache-Control"] == "public, no-cache"
    again = browser.get(f"/docs/{path}", headers={"If-None-Match": answer.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    head = browser.head(f"/docs/{path}")
    assert (head.status_code, head.content, head.headers["ETag"]) == (200, b"", answer.headers["ETag"])


@each_row("path", ["docs", "docs/operating"])
def test_a_folder_without_a_slash_redirects_to_its_contents_below_any_path_of_a_proxy(
    browser: TestClient, path: str
) -> None:
    answer = browser.get(f"/{path}", follow_redirects=False)
    assert answer.status_code == 307
    assert urljoin(f"http://host/a/b/{path}", answer.headers["Location"]) == f"http://host/a/b/{path}/"


def test_the_policy_allows_the_sites_own_files_alone(browser: TestClient) -> None:
    policy = browser.get("/docs/").headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "script-src 'self';" in policy and "style-src 'self';" in policy
    assert "frame-ancestors 'none'" in policy and "unsafe" not in policy


@each_row(
    "path",
    [
        "/docs/none.html",
        "/docs/../secret.txt",
        "/docs/..%2fsecret.txt",
        "/docs/%2e%2e/secret.txt",
        "/docs/source/../../secret.txt",
        "/docs/_static/..%2f..%2f..%2fsecret.txt",
        "/docs//etc/passwd",
        "/docs/%2fetc%2fpasswd",
        "/docs/README.html%00",
        "/docs/README.html/",
        "/docs/sweeps.html%2f..%2f..%2fsecret.txt",
        "/docs/" + "a/" * 4000,
    ],
)
def test_no_other_path_is_a_file(browser: TestClient, path: str) -> None:
    # As raw bytes: the client would resolve the dots itself.
    answer = browser.get(httpx2.URL("http://testserver").copy_with(raw_path=path.encode()))
    assert (answer.status_code, answer.headers["Content-Type"]) == (404, "application/problem+json")
    assert len(answer.content) < 1000


def test_a_browser_at_a_page_that_is_none_gets_a_page_which_says_so(browser: TestClient) -> None:
    answer = browser.get("/docs/operating/none.html", headers={"Accept": "text/html"})
    assert (answer.status_code, answer.headers["Content-Type"]) == (404, HTML)


def test_the_rest_page_stands_where_the_docs_are(browser: TestClient) -> None:
    assert "SwaggerUIBundle" in browser.get("/docs/rest").text
    for name in ASSETS:
        assert browser.get(f"/docs/rest/{name}").status_code == 200


def test_a_service_without_the_docs_says_how_to_build_them_and_shows_them_when_they_are_there(
    browser: TestClient, docs: Path, tmp_path: Path
) -> None:
    assert browser.get("/docs/sweeps.html").text == DOCS["sweeps.html"]
    shutil.rmtree(docs)
    for path in ("/docs/", "/docs/sweeps.html"):
        answer = browser.get(path)
        assert (answer.status_code, answer.headers["Content-Type"]) == (404, HTML)
        assert "<code>make docs</code>" in answer.text
    build_docs(tmp_path)
    (docs / "sweeps.html").write_text("new")
    assert browser.get("/docs/sweeps.html").text == "new"
