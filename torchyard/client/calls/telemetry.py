"""Calls about a job's events, metrics, log and stacks."""

from collections.abc import Sequence
from dataclasses import dataclass
import json
from typing import Literal

from torchyard.client.calls.call import JSON, LARGE_PAGE, Call, Params, bounded, job_path
from torchyard.contract.telemetry.curves import CurvesView
from torchyard.contract.telemetry.views import (
    EventView,
    LogCurvesView,
    LogLine,
    LogMatch,
    LogSearchView,
    MetricsView,
    StacksView,
)
from torchyard.contract.wire.view import Page

LogStream = Literal["stdout", "stderr"]


def events(job_id: str, *, after: int) -> Call[Page[EventView]]:
    return Call(Page[EventView], "GET", f"{job_path(job_id)}/events", {"after": str(after), "limit": LARGE_PAGE})


def metrics(job_id: str, *, keys: Sequence[str], **bounds: int | None) -> Call[MetricsView]:
    return Call(MetricsView, "GET", f"{job_path(job_id)}/metrics", {"key": keys, **bounds})


def make_log_curves(job_id: str, pattern: str) -> Call[LogCurvesView]:
    content = json.dumps({"pattern": pattern})
    return Call(LogCurvesView, "POST", f"{job_path(job_id)}/metrics/from-log", content=content, headers=JSON)


def curves(job_ids: Sequence[str], *, keys: Sequence[str], hidden: bool, **shape: float | None) -> Call[CurvesView]:
    params: Params = {"job": job_ids, "key": keys, "hidden": "true" if hidden else None, **shape}
    return Call(CurvesView, "GET", "/v1/metrics", params)


@dataclass(frozen=True)
class LogLines:
    """Which lines of a log are wanted: those that meet every condition that is not None."""

    rank: int | None = None
    attempt: int | None = None
    stream: LogStream | None = None

    @property
    def params(self) -> dict[str, str | float | None]:
        return {"rank": self.rank, "attempt": self.attempt, "stream": self.stream}


def log_tail(job_id: str, *, tail: int, where: LogLines) -> Call[Page[LogLine]]:
    return Call(Page[LogLine], "GET", f"{job_path(job_id)}/logs", {"tail": tail, **where.params})


def log(job_id: str, *, after: int, where: LogLines, limit: int | None = None) -> Call[Page[LogLine]]:
    params: Params = {"after": str(after), "limit": bounded(limit), **where.params}
    return Call(Page[LogLine], "GET", f"{job_path(job_id)}/logs", params)


def log_before(job_id: str, *, before: int, where: LogLines, limit: int | None = None) -> Call[Page[LogLine]]:
    params: Params = {"before": before, "limit": bounded(limit), **where.params}
    return Call(Page[LogLine], "GET", f"{job_path(job_id)}/logs", params)


def search_logs(
    job_id: str,
    pattern: str,
    *,
    regex: bool,
    case: bool,
    where: LogLines,
    after: int,
    before: int | None,
    limit: int | None,
) -> Call[Page[LogMatch]]:
    flags = {"regex": "true" if regex else None, "case": "true" if case else None}
    place: Params = {"after": str(after), "before": before, "limit": bounded(limit)}
    params: Params = {"q": pattern, **flags, **place, **where.params}
    return Call[Page[LogMatch]](LogSearchView, "GET", f"{job_path(job_id)}/logs/search", params)


def request_stacks(job_id: str) -> Call[StacksView]:
    return Call(StacksView, "POST", f"{job_path(job_id)}/stacks")


def stacks(job_id: str) -> Call[StacksView]:
    return Call(StacksView, "GET", f"{job_path(job_id)}/stacks")


def stream_path(job_id: str) -> str:
    return f"{job_path(job_id)}/stream"
