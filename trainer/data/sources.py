"""The local path of a source."""

from pathlib import Path
from urllib.parse import unquote

URL = "file://"


def local_path(source: str) -> Path:
    """Returns the path of a `file://` URL, or a path as it is."""
    return Path(unquote(source.removeprefix(URL)) if source.startswith(URL) else source)
