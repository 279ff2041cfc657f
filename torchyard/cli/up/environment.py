"""The environments of the programs that `up` and `join` start."""

from collections.abc import Mapping
import os
from pathlib import Path

from torchyard.host.datadir import format_allowed_paths

MAIL = "TORCHYARD_SMTP_PASSWORD"
"""The controller alone gets it."""


def environ(*, settings: bool = False) -> dict[str, str]:
    """Returns this process's variables without `TORCHYARD_…`, or with them if `settings`, but what one alone gets."""
    own = {name: value for name, value in os.environ.items() if settings or not name.startswith("TORCHYARD_")}
    own.pop("TORCHYARD_TOKEN", None)
    own.pop(MAIL, None)
    return {**own, "PYTHONUNBUFFERED": "1"}


def worker_variables(*, cpu_slots: int | None, allow_paths: Mapping[Path, bool], umask: int) -> dict[str, str]:
    """Returns the settings of a worker that the command line gives. `umask`: that of the operator, which jobs get."""
    return {
        "TORCHYARD_HELD_GPUS": os.environ.get("TORCHYARD_HELD_GPUS") or "leave",
        "TORCHYARD_UMASK": os.environ.get("TORCHYARD_UMASK") or f"{umask:03o}",
        "TORCHYARD_ALLOW_PATHS": format_allowed_paths(allow_paths),
        **({"TORCHYARD_CPU_SLOTS": str(cpu_slots)} if cpu_slots is not None else {}),
    }
