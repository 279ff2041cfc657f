"""The orders of the processes that read requirements and install packages, and the answer of the first one."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from torchyard.contract.attempts.records import Sandbox
from torchyard.contract.wire.codec import Record, at_most

Kind = Literal["requirements", "lock", "script"]

REQUIREMENTS, CONSTRAINTS, PYPROJECT, LOCK, SCRIPT = (
    "requirements.txt",
    "constraints.txt",
    "pyproject.toml",
    "uv.lock",
    "script.py",
)
FILES = frozenset({REQUIREMENTS, CONSTRAINTS, PYPROJECT, LOCK, SCRIPT})
"""The names of files in the folder `input`."""
SERVICE = "torchyard"
"""The package that is always the worker's."""
INDEX = "TORCHYARD_INSTALL_INDEX"
"""Has the index in the process that installs: no argument may, as an index can have a password."""

MAX_TEXT_BYTES = 256 << 10
"""Bytes of a requirements file with all that it includes, of a `pyproject.toml`, or of a script's metadata."""
MAX_LOCK_BYTES = 16 << 20
"""Bytes of a `uv.lock`, or of a script, in which only the metadata is read."""
MAX_REPORT_BYTES = 64 << 10
"""Bytes of a `ReadReport`."""


@dataclass(frozen=True, kw_only=True)
class ReadOrder(Record):
    """Reads what the code in the folder `code`, a path without links, requires."""

    code: str
    kind: Kind
    name: str
    """The file below `code`: the requirements, `pyproject.toml`, or the script."""
    own_index: bool
    """The operator chose where packages come from, so that the job may not."""
    builds: bool
    """Whether packages may be built from source."""
    seconds: int
    """The limit of processor time."""
    python: str
    """The version of the worker's Python."""
    versions: dict[str, str]
    """Those of the worker's torch, and of what fits it alone."""


@dataclass(frozen=True, kw_only=True)
class ReadReport(Record):
    """What was read, or what is wrong with it. The files' bytes follow it, one after another."""

    problem: Literal["", "data", "config"] = ""
    message: Annotated[str, at_most(4_000)] = ""
    error: int = 0
    """The `errno` of the system's error."""
    kind: Kind = "requirements"
    own_torch: bool = False
    """Whether torch is to be installed, as the worker's is not what is asked for."""
    provided: Annotated[list[Annotated[str, at_most(100)]], at_most(200)] = field(default_factory=list[str])
    """The packages of the worker that are taken."""
    notes: Annotated[list[Annotated[str, at_most(1_000)]], at_most(200)] = field(default_factory=list[str])
    """What of them is not what is asked for."""
    projects: Annotated[list[Annotated[str, at_most(500)]], at_most(100)] = field(default_factory=list[str])
    """Folders of the code that are installed, with extras."""
    sizes: Annotated[dict[str, int], at_most(4)] = field(default_factory=dict[str, int])
    """The bytes of each file, by its name."""


@dataclass(frozen=True, kw_only=True)
class InstallOrder(Record):
    """Installs what `input` in `folder` says into `venv`, and leaves nothing else that counts."""

    kind: Kind
    folder: str
    """Belongs to this installation alone, which may not write it, but only its folders `venv` and `work`."""
    downloads: str
    """uv's cache."""
    uv: str
    provided: list[str]
    """Packages that are not installed, as those of `site` are used."""
    site: list[str]
    """Folders with the worker's packages, which the environment sees behind its own."""
    builds: bool
    """Whether packages may be built from source."""
    code: str
    """The folder of the code, of which `projects` are installed: without any, nothing of it is read."""
    projects: list[str]
    sandbox: Sandbox
