"""Serves the site that `make docs` builds of `docs/`: pages, search, and the sources to which pages link."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from fastapi import FastAPI, Request, Response

from api.middleware.etags import Fixed
from torchyard.contract.errors import NotFound

BUILT = Path(__file__).with_name("docs")
"""Where the build of `docs/` lies; the wheel has it."""
_INDEX = "README.html"
"""The page of a folder."""
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "Cache-Control": "public, no-cache",
}
_NOT_BUILT = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Torchyard docs</title>
<h1>The docs are not built</h1>
<p>In a clone of Torchyard, run <code>make docs</code>. Packages and image have them.</p>
<p><a href="rest">The REST interface</a> is described without them.</p>
</html>
"""


@dataclass(frozen=True)
class _Build:
    """The files of a build. `mark` tells it from a later one."""

    mark: tuple[int, ...]
    paths: Mapping[str, Path]
    """The files by their paths below `/docs/`: a request opens none but these."""
    read: dict[str, Fixed] = field(default_factory=dict)


class DocSite:
    """The site in `folder`. A file is read at its first request; a newer build at the next one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._found: _Build | None = None
        self._lock = Lock()

    def answer(self, request: Request, path: str) -> Response:
        """Returns the file at a path below `/docs/`; that of a page may lack its `.html`. Raises NotFound."""
        try:
            build = self._build()
            for name in _names(path):
                if name in build.paths:
                    return _file(build, name).answer(request)
            if f"{path}/{_INDEX}" in build.paths:
                return _redirect(f"{path.rpartition('/')[2]}/")
        except FileNotFoundError:  # there is no build, or the next one is being written
            return Response(_NOT_BUILT, status_code=404, media_type="text/html")
        if (page := request.app.state.website.instead(request)) is not None:
            return page
        raise NotFound(f"there is no page /docs/{path[:200]}")

    def _build(self) -> _Build:
        """Returns the build that lies in the folder. Raises FileNotFoundError without one."""
        index = (self._folder / _INDEX).stat()
        mark = (index.st_mtime_ns, index.st_size, index.st_ino)
        with self._lock:
            if self._found is None or self._found.mark != mark:
                files = [path for path in self._folder.rglob("*") if path.is_file()]
                self._found = _Build(mark, {path.relative_to(self._folder).as_posix(): path for path in files})
            return self._found


def install(app: FastAPI, folder: Path) -> None:
    """Adds the site to `app`, behind `/docs/rest`. It needs no token: it says nothing of this service."""
    site = DocSite(folder)

    async def go_to_index() -> Response:
        return _redirect("docs/")

    def read_docs(request: Request, path: str) -> Response:
        return site.answer(request, path)

    app.add_api_route("/docs", go_to_index, methods=["GET", "HEAD"], include_in_schema=False)
    app.add_api_route("/docs/{path:path}", read_docs, methods=["GET", "HEAD"], include_in_schema=False)


def _names(path: str) -> tuple[str, ...]:
    return (f"{path}{_INDEX}",) if not path or path.endswith("/") else (path, f"{path}.html")


def _redirect(target: str) -> Response:
    """`target` is relative: a proxy may have put the site below a path."""
    return Response(status_code=307, headers={"Location": target})


def _file(build: _Build, name: str) -> Fixed:
    if name not in build.read:
        build.read[name] = Fixed.of_file(build.paths[name], headers=_HEADERS)
    return build.read[name]
