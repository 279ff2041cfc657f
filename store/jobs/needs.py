"""What a spec names that only some hosts have: files by `file://`, and an environment."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from torchyard.contract.spec.spec import ScriptSpec, Spec

_FILE = "file://"


def needs_of(spec: Spec) -> Mapping[str, Any] | None:
    """Returns the absolute paths (`folders`) and the environment (`python`) that a job names; None if it names none."""
    folders = sorted({unquote(url.removeprefix(_FILE)) for url in spec.urls.values() if url.startswith(_FILE)})
    python = spec.config.python if isinstance(spec, ScriptSpec) else None
    if not folders and python is None:
        return None
    return {"folders": folders} | ({} if python is None else {"python": python})
