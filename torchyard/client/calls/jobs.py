"""Calls about jobs."""

from collections.abc import Mapping, Sequence
import json
from typing import Any

from torchyard.client.calls.call import (
    JSON,
    LARGE_PAGE,
    LONGEST_PAGE,
    Call,
    Spec,
    encoded,
    given,
    idempotency,
    job_path,
)
from torchyard.contract.advice import AdviceView
from torchyard.contract.attempts.views import AttemptView
from torchyard.contract.jobs.filters import JobFilter, JobQuery, JobSort
from torchyard.contract.jobs.requests import JobAction
from torchyard.contract.jobs.submissions import BatchView, SpecView
from torchyard.contract.jobs.views import ActionsView, JobPage, JobSummary, JobView
from torchyard.contract.spec.spec import MOST_SPEC_BYTES
from torchyard.contract.wire.view import Page, View


def submit(spec: Spec, *, key: str | None, forecast: bool = False) -> Call[JobView]:
    headers = {**JSON, **idempotency(key)}
    return Call(JobView, "POST", "/v1/jobs", _asking(forecast), content=_encoded(spec), headers=headers)


def submit_batch(specs: Sequence[Spec], *, atomic: bool, key: str | None) -> Call[BatchView]:
    content = f'{{"jobs": [{",".join(map(_encoded, specs))}], "atomic": {json.dumps(atomic)}}}'
    return Call(BatchView, "POST", "/v1/jobs/batch", content=content, headers={**JSON, **idempotency(key)})


def validate(spec: Spec, *, forecast: bool = False) -> Call[SpecView]:
    return Call(SpecView, "POST", "/v1/jobs/validate", _asking(forecast), content=_encoded(spec), headers=JSON)


def get(job_id: str, *, wait: float | None = None, after_version: int | None = None) -> Call[JobView]:
    return Call(JobView, "GET", job_path(job_id), {"wait": wait, "after_version": after_version})


def advice(job_id: str) -> Call[AdviceView]:
    return Call(AdviceView, "GET", f"{job_path(job_id)}/advice")


def update(job_id: str, **changes: Any) -> Call[JobView]:
    return Call(JobView, "PATCH", job_path(job_id), content=json.dumps(given(changes)), headers=JSON)


def cancel(job_id: str, *, now: bool) -> Call[JobView]:
    return Call(JobView, "POST", f"{job_path(job_id)}/cancel", {"now": "true" if now else None})


def pause(job_id: str) -> Call[JobView]:
    return Call(JobView, "POST", f"{job_path(job_id)}/pause")


def resume(job_id: str, *, devices: int | None = None) -> Call[JobView]:
    path = f"{job_path(job_id)}/resume"
    if devices is None:
        return Call(JobView, "POST", path)
    return Call(JobView, "POST", path, content=json.dumps({"devices": devices}), headers=JSON)


def retry(
    job_id: str,
    *,
    ref: str | None,
    key: str | None,
    devices: int | None = None,
    fresh: bool = False,
    dev: Mapping[str, str] | None = None,
) -> Call[JobView]:
    path = f"{job_path(job_id)}/retry"
    named = (("from", ref), ("devices", devices), ("fresh", fresh or None), ("dev", dev))
    wanted = {name: value for name, value in named if value is not None}
    if not wanted:
        return Call(JobView, "POST", path, headers=idempotency(key))
    return Call(JobView, "POST", path, content=json.dumps(wanted), headers={**JSON, **idempotency(key)})


def delete(job_id: str) -> Call[View]:
    return Call(View, "DELETE", job_path(job_id), repeatable=False)


def jobs(where: JobQuery, *, sort: JobSort | None = None, limit: int | None = None) -> Call[Page[JobSummary]]:
    size = None if limit is None else max(1, min(limit, LONGEST_PAGE))
    return Call(Page[JobSummary], "GET", "/v1/jobs", {**_sent(where), "sort": sort, "limit": size})


def counts(where: JobFilter) -> Call[JobPage]:
    return Call(JobPage, "GET", "/v1/jobs", {**_sent(where), "limit": 1, "counts": "true"})


def groups(where: JobQuery, *, by: str) -> Call[JobPage]:
    return Call(JobPage, "GET", "/v1/jobs", {**_sent(where), "limit": 1, "group_by": by})


def star(job_id: str, *, starred: bool) -> Call[View]:
    return Call(View, "PUT" if starred else "DELETE", f"{job_path(job_id)}/star")


def act(
    action: JobAction,
    *,
    ids: Sequence[str] | None,
    where: JobFilter,
    now: bool,
    labels: Mapping[str, str | None] | None,
    dry_run: bool,
) -> Call[ActionsView]:
    chosen = {"filter": _sent(where)} if ids is None else {"ids": [*ids]}
    forced = {"now": True} if now else {}
    changes = {} if labels is None else {"labels": dict(labels)}
    content = json.dumps({"action": action, "dry_run": dry_run, **forced, **changes, **chosen})
    return Call(ActionsView, "POST", "/v1/jobs/actions", content=content, headers=JSON, repeatable=action != "delete")


def attempts(job_id: str) -> Call[Page[AttemptView]]:
    return Call(Page[AttemptView], "GET", f"{job_path(job_id)}/attempts", {"limit": LARGE_PAGE})


def _asking(forecast: bool) -> dict[str, str | None]:
    return {"forecast": "true" if forecast else None}


def _sent(where: JobFilter) -> dict[str, Any]:
    return where.model_dump(mode="json", exclude_unset=True)


def _encoded(spec: Spec) -> str:
    return encoded(spec, what="job spec", most=MOST_SPEC_BYTES)
