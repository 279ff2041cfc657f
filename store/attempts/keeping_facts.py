"""Requests to keep files of working folders, as the API and the worker see them."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeepFacts:
    """A request, and how far its worker has come. Times are microseconds since the epoch."""

    paths: Sequence[str]
    attempt: int
    requested_at: int
    answered_at: int | None
    refused: str | None
    files: int
    size: int
    copied: int
    worker: str = ""
    """The name of the worker on whose host the folder is."""
    away: bool = False
    """Whether that worker has not been seen for a while."""


@dataclass(frozen=True, slots=True)
class Kept:
    """An unanswered request, as its worker reads it."""

    job_id: str
    owner: str
    attempt: int
    paths: Sequence[str]
    requested_at: int
