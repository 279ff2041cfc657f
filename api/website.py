"""Serves the page that is built from `web/`: one HTML file for all its addresses, and its assets."""

from dataclasses import dataclass
from pathlib import Path
import re
from threading import Lock

from fastapi import FastAPI, Request, Response

from api.middleware import etags
from api.middleware.etags import Fixed
from torchyard.contract.errors import NotFound

BUILT = Path(__file__).with_name("static")
"""Where the build of `web/` lies; the wheel has it."""
TERMINAL = "terminal"
"""The folder in it of the page of a terminal."""
_ADDRESSES = (
    *(
        "/",
        "/jobs",
        "/jobs/{rest:path}",
        "/sweeps",
        "/sweeps/{rest:path}",
        "/schedules",
        "/compare",
        "/models",
        "/settings",
        "/submit",
        "/workers",
        "/workers/{rest:path}",
        "/login",
    ),
)
"""The addresses that all answer the same HTML file. Its script shows what each stands for."""
_OWN_FOLDERS = ("/v1/", "/assets/")
"""What lies below them is never a page."""
_INDEX = "index.html"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; worker-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_HASHED = re.compile(r"-[A-Za-z0-9_-]{8}\.[a-z0-9]+$")
"""The end of an asset's name that the build derives from its content."""
_FOR_EVER, _REVALIDATED = "public, max-age=31536000, immutable", "public, no-cache"
_NOT_BUILT = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Torchyard</title>
<h1>Torchyard runs, and its page is not built</h1>
<p>In a clone of Torchyard, <code>make up</code> builds it and starts the service. Packages and image have it.</p>
<p>All else works: the command line, the Python client,
the <a href="docs/rest">REST interface</a>, and the <a href="docs/">docs</a>.</p>
</html>
"""


@dataclass(frozen=True)
class _Build:
    """A build of the page as it was read. `marks` tell it from a later one."""

    marks: tuple[int, ...]
    index: bytes
    assets: dict[str, Fixed]


class Website:
    """The page in `folder`. All its files are read together: no request opens a file by name.

    A build that is newer is read at the next request. Tabs that loaded the one before still find its files.
    """

    def __init__(self, folder: Path, *, policy: str = _POLICY) -> None:
        self._folder = folder
        self._policy = policy
        self._read: _Build | None = None
        self._before: dict[str, Fixed] = {}
        self._lock = Lock()

    @property
    def _headers(self) -> dict[str, str]:
        return {"Content-Security-Policy": self._policy, "Cache-Control": "no-cache"}

    @property
    def is_built(self) -> bool:
        return (self._folder / _INDEX).is_file()

    def index(self, request: Request) -> Response:
        """Returns the page at one of its addresses; if it is not built, a page that says how to build it."""
        build = self._build()
        if build is None:
            return Response(_NOT_BUILT, status_code=404, media_type="text/html")
        return etags.answer(request, _placed(build, request), media_type="text/html", headers=self._headers)

    def instead(self, request: Request) -> Response | None:
        """Returns the page, which says that there is none, to a browser that opens another address; else None."""
        is_opened = request.method in {"GET", "HEAD"} and "text/html" in request.headers.get("Accept", "")
        build = self._build() if is_opened and not request.scope["path"].startswith(_OWN_FOLDERS) else None
        if build is None:
            return None
        return Response(_placed(build, request), status_code=404, headers=self._headers, media_type="text/html")

    def asset(self, request: Request, name: str) -> Response:
        """Returns a file of the build. Raises NotFound."""
        build = self._build()
        asset = None if build is None else build.assets.get(name) or self._before.get(name)
        if asset is None:
            raise NotFound(f"there is no file /assets/{name[:200]}")
        return asset.answer(request)

    def _build(self) -> _Build | None:
        """Returns the build that lies in the folder, or None without one."""
        try:
            marks = self._marks()
            with self._lock:
                if self._read is None or self._read.marks != marks:
                    self._before, self._read = ({} if self._read is None else self._read.assets), self._new(marks)
                return self._read
        except FileNotFoundError:  # there is none, or the next one is being written
            return None

    def _marks(self) -> tuple[int, ...]:
        index, assets = (self._folder / _INDEX).stat(), (self._folder / "assets").stat()
        return (index.st_mtime_ns, index.st_size, index.st_ino, assets.st_mtime_ns)

    def _new(self, marks: tuple[int, ...]) -> _Build:
        folder = self._folder / "assets"
        assets = {path.relative_to(folder).as_posix(): _read(path) for path in folder.rglob("*") if path.is_file()}
        return _Build(marks, (self._folder / _INDEX).read_bytes(), assets)


def install(app: FastAPI, folder: Path) -> None:
    """Adds the page to `app`. It needs no token: all that it shows, it asks the API for."""
    page = app.state.website = Website(folder)

    def read_page(request: Request) -> Response:
        return page.index(request)

    def read_asset(request: Request, name: str) -> Response:
        return page.asset(request, name)

    endpoints = {**dict.fromkeys(_ADDRESSES, read_page), "/assets/{name:path}": read_asset}
    for path, endpoint in endpoints.items():
        app.add_api_route(path, endpoint, methods=["GET", "HEAD"], include_in_schema=False)


def _placed(build: _Build, request: Request) -> bytes:
    """Returns the HTML with its assets as seen from the address: the root of the service may be a folder of a proxy."""
    up = b"../" * (request.scope["raw_path"].count(b"/") - 1)
    return build.index.replace(b'="./', b'="' + up) if up else build.index


def _read(path: Path) -> Fixed:
    lifetime = _FOR_EVER if _HASHED.search(path.name) else _REVALIDATED
    # A web worker has the policy of its own script, not that of the page which starts it.
    return Fixed.of_file(path, headers={"Content-Security-Policy": _POLICY, "Cache-Control": lifetime})
