"""The result of a check."""

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True)
class Finding:
    """One entry of the report. `advice` says how to fix the problem, and is empty if there is none."""

    check: str
    status: Status
    fact: str
    advice: str = ""


def ok(check: str, fact: str) -> Finding:
    return Finding(check, Status.OK, fact)


def warning(check: str, fact: str, advice: str) -> Finding:
    return Finding(check, Status.WARNING, fact, advice)


def failed(check: str, fact: str, advice: str) -> Finding:
    return Finding(check, Status.FAILED, fact, advice)
