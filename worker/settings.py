"""The settings of a worker: `TORCHYARD_*` variables, with defaults for one laptop."""

from datetime import timedelta
import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from store import settings
from torchyard.contract.durations import parse_duration


def _age(value: Any) -> timedelta | None:
    return None if value in {None, ""} else parse_duration(value)


def _size(value: Any) -> Any:
    return None if value == "" else value


Age = Annotated[timedelta | None, BeforeValidator(_age)]
"""`30d`, or empty for ever."""
Size = Annotated[Annotated[int, Field(ge=0, lt=2**62)] | None, BeforeValidator(_size)]
"""Bytes, or empty for any number."""


class Settings(settings.Settings):
    """Where the data is, what a worker offers, and what it keeps. As `store.settings.Settings`."""

    cpu_slots: Annotated[int, Field(ge=0, le=4096)] | None = None
    allow_paths: str = ""
    """Folders below which a job may name `file://` data and code, separated by `:`."""
    launcher: Literal["auto", "torchrun"] = "auto"
    """`torchrun`: keep no warm process, and start every job by torchrun."""
    keep_logs: Age = None
    """After the end of a job."""
    keep_logs_bytes: Size = None
    """Of each finished job."""
    keep_events: Age = None
    """After the end of a job; changes of its state stay."""
    keep_events_bytes: Size = None
    """Of each finished job, as `keep_events`."""
    keep_runs: Age = None
    """Run directories, after the end of the attempt."""
    keep_runs_bytes: Size = None
    """All run directories of this host."""

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    @property
    def allowed(self) -> tuple[Path, ...]:
        return tuple(Path(part) for part in self.allow_paths.split(os.pathsep) if part)
