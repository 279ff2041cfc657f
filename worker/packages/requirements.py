"""What a job's code requires, as files for uv, and what has to be read for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
import hashlib
import json
from pathlib import Path
import platform

from torchyard.contract.errors import ConfigError
from torchyard.contract.recipes import Script
from torchyard.contract.recipes.script import SCRIPT_METADATA
from worker.packages.order import LOCK, PYPROJECT, Kind, ReadOrder
from worker.packages.rules import PackageRules, family


@dataclass(frozen=True)
class Requirements:
    """What to install, as files for uv."""

    kind: Kind
    shown: str
    """The name for the job's owner."""
    files: Mapping[str, bytes] = field(repr=False)
    own_torch: bool
    """Whether torch is installed, too. Else it is the worker's."""
    provided: Sequence[str] = ()
    """The packages of the worker that are taken."""
    notes: Sequence[str] = ()
    projects: Sequence[str] = ()
    """Folders of the code that are installed, too."""
    code_digest: str = ""
    """What changes with the files of the code, if any of it is installed."""
    """What is not as it is asked for, for the job's owner."""

    def digest(self) -> str:
        """Returns the sha256 of all that is read, as hexadecimal digits."""
        parts = {name: hashlib.sha256(content).hexdigest() for name, content in self.files.items()}
        return hashlib.sha256(
            json.dumps([self.kind, parts, *self.projects, self.code_digest], sort_keys=True).encode()
        ).hexdigest()


def order_of(code: Path, config: Script, rules: PackageRules) -> ReadOrder | None:
    """Returns what to read in the folder `code`, or None if the program takes the worker's packages.

    Raises ConfigError.
    """
    name, kind = config.requirements, "requirements"
    if name is None:
        return None
    if name == SCRIPT_METADATA:
        name, kind = config.entrypoint, "script"
    elif Path(name).name == PYPROJECT:
        kind = "lock"
    if name is None:
        raise ConfigError("config.requirements: script needs an entrypoint, whose metadata it reads")
    return ReadOrder(
        code=str(code),
        kind=kind,
        name=name,
        own_index=bool(rules.index),
        builds=rules.builds,
        seconds=rules.read_seconds,
        python=platform.python_version(),
        versions=family(),
    )


def shown(order: ReadOrder) -> str:
    """Returns what is read, for the job's owner."""
    if order.kind == "script":
        return f"the metadata of {order.name}"
    return str(Path(order.name).with_name(LOCK)) if order.kind == "lock" else order.name
