"""A small page and a small site of docs, as the builds of `web/` and `docs/` leave them."""

from pathlib import Path

INDEX = """\
<!doctype html>
<html lang="en">
<head>
<title>Torchyard</title>
<link rel="icon" href="./assets/favicon-Ab3_d-9x.svg">
<script type="module" src="./assets/index-BxK3a9Zq.js"></script>
<link rel="stylesheet" href="./assets/index-C0ffee42.css">
</head>
<body></body>
</html>
"""
SCRIPT = b"export const name = './x';" * 100
ASSETS = {
    "favicon-Ab3_d-9x.svg": (b"<svg/>", "image/svg+xml"),
    "index-BxK3a9Zq.js": (SCRIPT, "text/javascript; charset=utf-8"),
    "index-C0ffee42.css": (b"body{}", "text/css; charset=utf-8"),
    "font-D3adBeef.woff2": (b"wOF2", "font/woff2"),
}

DOCS = {
    "README.html": '<h1>Docs</h1><link href="_static/site.css"><script src="_static/site.js"></script>',
    "sweeps.html": "<h1>Sweeps</h1>" + "<p>Text</p>" * 200,
    "operating/README.html": "<h1>Operate</h1>",
    "_static/site.css": "body{}",
    "_static/site.js": "search()",
    "searchindex.js": "Search.setIndex({})",
    "source/docs/decisions/0001-first.md.txt": "# <script>alert(1)</script>",
}


def build_page(folder: Path) -> Path:
    """Writes the page, and a file beside it that must not be served. Returns the page's folder."""
    built = folder / "static"
    (built / "assets").mkdir(parents=True)
    (built / "index.html").write_text(INDEX)
    (folder / "secret.txt").write_text("secret")
    for name, (content, _) in ASSETS.items():
        (built / "assets" / name).write_bytes(content)
    return built


def build_docs(folder: Path) -> Path:
    """Writes the site, and a file beside it that must not be served. Returns the site's folder."""
    built = folder / "docs"
    for name, content in DOCS.items():
        (built / name).parent.mkdir(parents=True, exist_ok=True)
        (built / name).write_text(content)
    (folder / "secret.txt").write_text("secret")
    return built
