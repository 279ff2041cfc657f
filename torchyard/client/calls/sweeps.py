"""Calls about sweeps."""

import json
from typing import Any

from torchyard.client.calls.call import (
    JSON,
    LONGEST_PAGE,
    Call,
    Params,
    Spec,
    bounded,
    encoded,
    given,
    idempotency,
    segment,
)
from torchyard.contract.sweeps.spec import MOST_SWEEP_BYTES
from torchyard.contract.sweeps.views import SweepResolved, SweepSummary, SweepView, TrialView
from torchyard.contract.wire.view import Page, View

_PATH = "/v1/sweeps"


def create(spec: Spec, *, key: str | None) -> Call[SweepView]:
    return Call(SweepView, "POST", _PATH, content=_encoded(spec), headers={**JSON, **idempotency(key)})


def validate(spec: Spec) -> Call[SweepResolved]:
    return Call(SweepResolved, "POST", f"{_PATH}/validate", content=_encoded(spec), headers=JSON)


def get(sweep_id: str) -> Call[SweepView]:
    return Call(SweepView, "GET", _path(sweep_id))


def sweeps(where: Params) -> Call[Page[SweepSummary]]:
    return Call(Page[SweepSummary], "GET", _PATH, {"limit": LONGEST_PAGE, **where})


def trials(sweep_id: str, *, sort: str, limit: int | None) -> Call[Page[TrialView]]:
    return Call(Page[TrialView], "GET", f"{_path(sweep_id)}/trials", {"sort": sort, "limit": bounded(limit)})


def act(sweep_id: str, action: str) -> Call[SweepView]:
    """Returns the call that pauses, resumes or cancels a sweep."""
    return Call(SweepView, "POST", f"{_path(sweep_id)}/{action}")


def extend(sweep_id: str, **more: Any) -> Call[SweepView]:
    content = json.dumps(given(more))
    return Call(SweepView, "POST", f"{_path(sweep_id)}/extend", content=content, headers=JSON, repeatable=False)


def promote(sweep_id: str, number: int) -> Call[TrialView]:
    return Call(TrialView, "POST", f"{_path(sweep_id)}/trials/{number}/promote", repeatable=False)


def delete(sweep_id: str, *, jobs: bool) -> Call[View]:
    return Call(View, "DELETE", _path(sweep_id), {"jobs": "true" if jobs else None}, repeatable=False)


def _path(sweep_id: str) -> str:
    return f"{_PATH}/{segment(sweep_id)}"


def _encoded(spec: Spec) -> str:
    return encoded(spec, what="sweep", most=MOST_SWEEP_BYTES)
