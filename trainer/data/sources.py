"""Where a source lies."""

from pathlib import Path
from urllib.parse import unquote

URL = "file://"


def local_path(source: str) -> Path:
    """Of a path as it is, or of a `file://` URL."""
    return Path(unquote(source.removeprefix(URL)) if source.startswith(URL) else source)
