"""What the process that installs packages is told."""

from dataclasses import dataclass
from typing import Literal

from torchyard.contract.record import Record
from torchyard.contract.records import Sandbox

REQUIREMENTS, PYPROJECT, LOCK, SCRIPT = "requirements.txt", "pyproject.toml", "uv.lock", "script.py"
"""The names of files in the folder `input`."""
SERVICE = "torchyard"
"""The package that is always the worker's."""
INDEX = "TORCHYARD_INSTALL_INDEX"
"""Has the index in that process: no argument may, as an index can have a password."""


@dataclass(frozen=True, kw_only=True)
class InstallOrder(Record):
    """Installs what `input` in `folder` says into `venv`, and leaves nothing else that counts."""

    kind: Literal["requirements", "lock", "script"]
    folder: str
    """Belongs to this installation alone, which may not write it, but only its folders `venv` and `work`."""
    downloads: str
    """uv's cache."""
    uv: str
    provided: list[str]
    """Packages that are not installed, as those of `site` are used."""
    site: list[str]
    """Folders with the worker's packages, which the environment sees behind its own."""
    sandbox: Sandbox
