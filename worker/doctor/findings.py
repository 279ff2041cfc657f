"""What a check finds."""

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True)
class Finding:
    """One line of the report; `advice` says how to mend it, and is empty where all is well."""

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
