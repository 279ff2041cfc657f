"""Serves the OpenAPI document and the page that shows it. The page's assets come from an installed package."""

import base64
import hashlib
from importlib.resources import files
import json

from fastapi import FastAPI, Request, Response
from fastapi.staticfiles import StaticFiles

from api.middleware.etags import Fixed
from torchyard.contract.errors import NotFound

_ASSETS = ("swagger-ui-bundle.js", "swagger-ui.css", "favicon-32x32.png")
_SCRIPT = """\
SwaggerUIBundle({
  url: "../openapi.json", dom_id: "#ui", deepLinking: true, filter: true, displayRequestDuration: true,
  docExpansion: "list", defaultModelsExpandDepth: 0, tryItOutEnabled: true, validatorUrl: null,
});
"""
_PAGE = f"""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Torchyard: the REST interface</title>
<link rel="icon" href="rest/favicon-32x32.png">
<link rel="stylesheet" href="rest/swagger-ui.css">
</head>
<body>
<a href="./">All docs</a>
<div id="ui"></div>
<script src="rest/swagger-ui-bundle.js"></script>
<script>{_SCRIPT}</script>
</body>
</html>
"""
_SCRIPT_HASH = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
_POLICY = (
    f"default-src 'none'; script-src 'self' 'sha256-{_SCRIPT_HASH}'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_PAGE_HEADERS = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache"}
_ASSET_HEADERS = {"Cache-Control": "public, max-age=86400"}


def install(app: FastAPI) -> None:
    """Adds `/openapi.json` and `/docs/rest` to `app`. They need no token."""
    document = _Document(app)
    assets = StaticFiles(directory=str(files("fastapi_swagger") / "resources"))

    async def read_document(request: Request) -> Response:
        return document.answer(request)

    async def read_page() -> Response:
        return Response(_PAGE, media_type="text/html", headers=_PAGE_HEADERS)

    async def read_asset(request: Request, name: str) -> Response:
        if name not in _ASSETS:
            raise NotFound(f"there is no page /docs/rest/{name[:200]}")
        answer = await assets.get_response(name, request.scope)
        answer.headers.update(_ASSET_HEADERS)
        return answer

    routes = {"/openapi.json": read_document, "/docs/rest": read_page, "/docs/rest/{name}": read_asset}
    for path, endpoint in routes.items():
        app.add_api_route(path, endpoint, methods=["GET", "HEAD"], include_in_schema=False)


class _Document:
    """The document as bytes, made at the first request."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._made: Fixed | None = None

    def answer(self, request: Request) -> Response:
        if self._made is None:
            content = json.dumps(self._app.openapi(), ensure_ascii=False, separators=(",", ":")).encode()
            headers = {"Cache-Control": "no-cache"}
            self._made = Fixed.of(content, media_type="application/json", headers=headers, in_gzip=True)
        return self._made.answer(request)
