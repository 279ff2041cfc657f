"""Every call of the REST interface, as a record that a client sends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
import json
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import quote
from uuid import uuid4

from pydantic import BaseModel

from torchyard.contract.durations import format_duration
from torchyard.contract.errors import InvalidSpec, TooLarge
from torchyard.contract.filters import JobFilter, JobQuery, JobSort
from torchyard.contract.requests import JobAction
from torchyard.contract.spec import MOST_SPEC_BYTES
from torchyard.contract.team import Resource
from torchyard.contract.views.advice import AdviceView
from torchyard.contract.views.attempts import AttemptView
from torchyard.contract.views.base import Page, View
from torchyard.contract.views.checkpoints import ArtifactView, BundleView, CheckpointView
from torchyard.contract.views.cluster import ReadyView, TrainerView, WorkerHistoryView, WorkerView
from torchyard.contract.views.curves import CurvesView
from torchyard.contract.views.jobs import ActionsView, JobPage, JobSummary, JobView, QueueEntry, SpecView
from torchyard.contract.views.team import (
    AuditView,
    LoginCodeView,
    MeView,
    NewTokenView,
    QuotaView,
    RotationView,
    SecretView,
    TokenView,
    UserQuotaView,
    UserView,
)
from torchyard.contract.views.telemetry import EventView, LogLine, LogMatch, LogSearchView, MetricsView, StacksView

V = TypeVar("V", bound=BaseModel)
Params = Mapping[str, str | float | Sequence[str] | None]
Spec = Mapping[str, Any] | BaseModel
QuotaKind = Literal["user", "role"]
"""Whose limits a quota has: those of one user, or of every user of a role."""
LogStream = Literal["stdout", "stderr"]

_LARGE_PAGE = 1000
_LONGEST_PAGE = 100
"""The most jobs in one answer."""


@dataclass(frozen=True)
class Call(Generic[V]):
    """One request. `view` is the model of the answer's body. A `repeatable` call may arrive twice without harm."""

    view: type[V]
    method: str
    path: str
    params: Params = field(default_factory=dict[str, Any])
    content: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    repeatable: bool = True


def submit(spec: Spec, *, key: str | None) -> Call[JobView]:
    return Call(JobView, "POST", "/v1/jobs", content=_encoded(spec), headers={**_JSON, **_idempotency(key)})


def validate(spec: Spec) -> Call[SpecView]:
    return Call(SpecView, "POST", "/v1/jobs/validate", content=_encoded(spec), headers=_JSON)


def get(job_id: str, *, wait: float | None = None, after_version: int | None = None) -> Call[JobView]:
    return Call(JobView, "GET", job_path(job_id), {"wait": wait, "after_version": after_version})


def advice(job_id: str) -> Call[AdviceView]:
    return Call(AdviceView, "GET", f"{job_path(job_id)}/advice")


def update(job_id: str, **changes: Any) -> Call[JobView]:
    return Call(JobView, "PATCH", job_path(job_id), content=json.dumps(_given(changes)), headers=_JSON)


def cancel(job_id: str, *, now: bool) -> Call[JobView]:
    return Call(JobView, "POST", f"{job_path(job_id)}/cancel", {"now": "true" if now else None})


def pause(job_id: str) -> Call[JobView]:
    return Call(JobView, "POST", f"{job_path(job_id)}/pause")


def resume(job_id: str) -> Call[JobView]:
    return Call(JobView, "POST", f"{job_path(job_id)}/resume")


def retry(job_id: str, *, key: str | None) -> Call[JobView]:
    return Call(JobView, "POST", f"{job_path(job_id)}/retry", headers=_idempotency(key))


def delete(job_id: str) -> Call[View]:
    return Call(View, "DELETE", job_path(job_id), repeatable=False)


def jobs(where: JobQuery, *, sort: JobSort | None = None, limit: int | None = None) -> Call[Page[JobSummary]]:
    size = None if limit is None else max(1, min(limit, _LONGEST_PAGE))
    return Call(Page[JobSummary], "GET", "/v1/jobs", {**_sent(where), "sort": sort, "limit": size})


def counts(where: JobFilter) -> Call[JobPage]:
    return Call(JobPage, "GET", "/v1/jobs", {**_sent(where), "limit": 1, "counts": "true"})


def act(
    action: JobAction, *, ids: Sequence[str] | None, where: JobFilter, now: bool, dry_run: bool
) -> Call[ActionsView]:
    chosen = {"filter": _sent(where)} if ids is None else {"ids": [*ids]}
    forced = {"now": True} if now else {}
    content = json.dumps({"action": action, "dry_run": dry_run, **forced, **chosen})
    return Call(ActionsView, "POST", "/v1/jobs/actions", content=content, headers=_JSON, repeatable=action != "delete")


def queue() -> Call[Page[QueueEntry]]:
    return Call(Page[QueueEntry], "GET", "/v1/queue")


def trainers() -> Call[Page[TrainerView]]:
    return Call(Page[TrainerView], "GET", "/v1/trainers")


def workers() -> Call[Page[WorkerView]]:
    return Call(Page[WorkerView], "GET", "/v1/workers")


def worker_history(
    worker_id: str, *, begins: datetime | None, ends: datetime | None, max_points: int | None
) -> Call[WorkerHistoryView]:
    times = {"from": begins, "to": ends}
    params: dict[str, Any] = {name: time.astimezone().isoformat() for name, time in times.items() if time is not None}
    path = f"/v1/workers/{_segment(worker_id)}/history"
    return Call(WorkerHistoryView, "GET", path, {**params, "max_points": max_points})


def drain(worker_id: str) -> Call[WorkerView]:
    return Call(WorkerView, "POST", f"/v1/workers/{_segment(worker_id)}/drain")


def undrain(worker_id: str) -> Call[WorkerView]:
    return Call(WorkerView, "POST", f"/v1/workers/{_segment(worker_id)}/undrain")


def events(job_id: str, *, after: int) -> Call[Page[EventView]]:
    return Call(Page[EventView], "GET", f"{job_path(job_id)}/events", {"after": str(after), "limit": _LARGE_PAGE})


def metrics(job_id: str, *, keys: Sequence[str], **bounds: int | None) -> Call[MetricsView]:
    return Call(MetricsView, "GET", f"{job_path(job_id)}/metrics", {"key": keys, **bounds})


def curves(job_ids: Sequence[str], *, keys: Sequence[str], hidden: bool, **shape: float | None) -> Call[CurvesView]:
    params: Params = {"job": job_ids, "key": keys, "hidden": "true" if hidden else None, **shape}
    return Call(CurvesView, "GET", "/v1/metrics", params)


def attempts(job_id: str) -> Call[Page[AttemptView]]:
    return Call(Page[AttemptView], "GET", f"{job_path(job_id)}/attempts", {"limit": _LARGE_PAGE})


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
    params: Params = {"after": str(after), "limit": _bounded(limit), **where.params}
    return Call(Page[LogLine], "GET", f"{job_path(job_id)}/logs", params)


def log_before(job_id: str, *, before: int, where: LogLines, limit: int | None = None) -> Call[Page[LogLine]]:
    params: Params = {"before": before, "limit": _bounded(limit), **where.params}
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
    place: Params = {"after": str(after), "before": before, "limit": _bounded(limit)}
    params: Params = {"q": pattern, **flags, **place, **where.params}
    return Call[Page[LogMatch]](LogSearchView, "GET", f"{job_path(job_id)}/logs/search", params)


def request_stacks(job_id: str) -> Call[StacksView]:
    return Call(StacksView, "POST", f"{job_path(job_id)}/stacks")


def stacks(job_id: str) -> Call[StacksView]:
    return Call(StacksView, "GET", f"{job_path(job_id)}/stacks")


def checkpoints(job_id: str) -> Call[Page[CheckpointView]]:
    return Call(Page[CheckpointView], "GET", f"{job_path(job_id)}/checkpoints")


def checkpoint(job_id: str, ref: str) -> Call[CheckpointView]:
    return Call(CheckpointView, "GET", _checkpoint_path(job_id, ref))


def artifacts(job_id: str, *, path: str | None) -> Call[Page[ArtifactView]]:
    return Call(Page[ArtifactView], "GET", f"{job_path(job_id)}/artifacts", {"path": path, "limit": _LARGE_PAGE})


def bundles(*, limit: int | None) -> Call[Page[BundleView]]:
    size = _LONGEST_PAGE if limit is None else max(1, min(limit, _LONGEST_PAGE))
    return Call(Page[BundleView], "GET", "/v1/bundles", {"limit": size})


def bundle(sha256: str) -> Call[BundleView]:
    return Call(BundleView, "GET", bundle_path(sha256))


def delete_bundle(sha256: str) -> Call[View]:
    return Call(View, "DELETE", bundle_path(sha256), repeatable=False)


def me() -> Call[MeView]:
    return Call(MeView, "GET", "/v1/me")


def login_code() -> Call[LoginCodeView]:
    return Call(LoginCodeView, "POST", "/v1/session/codes")


def users() -> Call[Page[UserView]]:
    return Call(Page[UserView], "GET", "/v1/users", {"limit": _LARGE_PAGE})


def add_user(name: str, *, role: str) -> Call[UserView]:
    content = json.dumps({"name": name, "role": role})
    return Call(UserView, "POST", "/v1/users", content=content, headers=_JSON, repeatable=False)


def change_user(name: str, **changes: Any) -> Call[UserView]:
    path = f"/v1/users/{_segment(name)}"
    return Call(UserView, "PATCH", path, content=json.dumps(_given(changes)), headers=_JSON)


def tokens(*, user: str | None) -> Call[Page[TokenView]]:
    return Call(Page[TokenView], "GET", "/v1/tokens", {"user": user, "limit": _LARGE_PAGE})


def make_token(
    *, name: str, user: str | None, scopes: Sequence[str] | None, lifetime: timedelta | None
) -> Call[NewTokenView]:
    body = {
        "name": name,
        "user": user,
        "scopes": None if scopes is None else [*scopes],
        "lifetime": None if lifetime is None else format_duration(lifetime),
    }
    return Call(NewTokenView, "POST", "/v1/tokens", content=json.dumps(body), headers=_JSON, repeatable=False)


def revoke_token(token_id: str) -> Call[View]:
    return Call(View, "DELETE", f"/v1/tokens/{_segment(token_id)}")


def quotas() -> Call[Page[QuotaView]]:
    return Call(Page[QuotaView], "GET", "/v1/quotas")


def quota(user: str) -> Call[UserQuotaView]:
    return Call(UserQuotaView, "GET", _quota_path("user", user))


def set_quota(kind: QuotaKind, name: str, limits: Mapping[Resource, int | None]) -> Call[View]:
    return Call(View, "PUT", _quota_path(kind, name), content=json.dumps({**limits}), headers=_JSON)


def secrets() -> Call[Page[SecretView]]:
    return Call(Page[SecretView], "GET", "/v1/secrets")


def set_secret(name: str, value: str) -> Call[SecretView]:
    return Call(SecretView, "PUT", _secret_path(name), content=json.dumps({"value": value}), headers=_JSON)


def delete_secret(name: str) -> Call[View]:
    return Call(View, "DELETE", _secret_path(name), repeatable=False)


def rotate_secrets() -> Call[RotationView]:
    return Call(RotationView, "POST", "/v1/secrets/rotate")


def clear_quota(kind: QuotaKind, name: str, resources: Sequence[str]) -> Call[View]:
    return Call(View, "DELETE", _quota_path(kind, name), {"resource": resources})


def audit(*, who: str | None, action: str | None, object: str | None, limit: int | None) -> Call[Page[AuditView]]:
    size = _LARGE_PAGE if limit is None else max(1, min(limit, _LARGE_PAGE))
    params: Params = {"who": who, "action": action, "object": object, "limit": size}
    return Call(Page[AuditView], "GET", "/v1/audit", params)


def ready() -> Call[ReadyView]:
    return Call(ReadyView, "GET", "/readyz")


def head(path: str) -> Call[View]:
    return Call(View, "HEAD", path)


def next_page(call: Call[V], cursor: str) -> Call[V]:
    """Returns the call for the page of a list that follows `cursor`."""
    return replace(call, params={**call.params, "after": cursor})


def job_path(job_id: str) -> str:
    return f"/v1/jobs/{_segment(job_id)}"


def stream_path(job_id: str) -> str:
    return f"{job_path(job_id)}/stream"


def file_path(job_id: str, ref: str, file: str | None) -> str:
    """Returns the path of a checkpoint's file; without a name, of its `state.pt`."""
    checkpoint = _checkpoint_path(job_id, ref)
    return f"{checkpoint}/download" if file is None else f"{checkpoint}/files/{quote(file)}"


def artifact_path(job_id: str, path: str) -> str:
    return f"{job_path(job_id)}/artifacts/{quote(path)}"


def bundle_path(sha256: str) -> str:
    return f"/v1/bundles/{_segment(sha256)}"


def bundle_content_path(sha256: str) -> str:
    return f"{bundle_path(sha256)}/content"


def _bounded(limit: int | None) -> int:
    return _LARGE_PAGE if limit is None else max(1, min(limit, _LARGE_PAGE))


def _checkpoint_path(job_id: str, ref: str) -> str:
    return f"{job_path(job_id)}/checkpoints/{_segment(ref)}"


def _secret_path(name: str) -> str:
    return f"/v1/secrets/{_segment(name)}"


def _quota_path(kind: QuotaKind, name: str) -> str:
    return f"/v1/quotas/{kind}s/{_segment(name)}"


def _segment(text: str) -> str:
    # `..` would change the path.
    return quote(text, safe="") if text.strip(".") else text.replace(".", "%2E")


def _sent(where: JobFilter) -> dict[str, Any]:
    return where.model_dump(mode="json", exclude_unset=True)


def _given(changes: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in changes.items() if value is not None}


def _idempotency(key: str | None) -> dict[str, str]:
    """Returns the header with which a call that arrives twice makes one job."""
    return {"Idempotency-Key": key or str(uuid4())}


def _encoded(spec: Spec) -> str:
    """Returns the spec as JSON. Raises InvalidSpec, and TooLarge."""
    try:
        text = spec.model_dump_json() if isinstance(spec, BaseModel) else json.dumps(spec, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidSpec(f"the spec cannot be written as JSON: {error}") from None
    size = len(text.encode())
    if size > MOST_SPEC_BYTES:
        raise TooLarge(f"the job spec has {size} bytes: submit at most {MOST_SPEC_BYTES}")
    return text


_JSON = {"Content-Type": "application/json"}
