"""A small page, as the build of `web/` leaves it."""

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


def build_page(folder: Path) -> Path:
    """Writes the page, and a file beside it that must not be served. Returns the page's folder."""
    built = folder / "static"
    (built / "assets").mkdir(parents=True)
    (built / "index.html").write_text(INDEX)
    (folder / "secret.txt").write_text("secret")
    for name, (content, _) in ASSETS.items():
        (built / "assets" / name).write_bytes(content)
    return built
