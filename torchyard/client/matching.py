"""The filter of a list or an action, from the arguments of a method."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict

from torchyard.contract.jobs.filters import JobFilter, JobQuery
from torchyard.contract.wire.schema import parse_request


class Matching(TypedDict, total=False):
    """The jobs that meet every condition: one of the states, the exact other values, and all `labels`.

    `q` is a part of the name, the id, the owner, a label's value or the notes' beginning. `init_from`: the id of a job
    that they start from; `retry_of`: of one that they retry. `sweep`, `schedule`: the id of that whose trials or runs
    they are. `starred`: with your star, or without. `archived`: archived jobs, in place of the others. What is None
    holds for every job.
    """

    state: Sequence[str] | None
    q: str | None
    name: str | None
    owner: str | None
    trainer: str | None
    init_from: str | None
    retry_of: str | None
    sweep: str | None
    schedule: str | None
    labels: Mapping[str, str] | None
    starred: bool | None
    archived: bool | None


class Listed(Matching, total=False):
    """The same for a list. A time without a zone is a local one."""

    created_after: datetime | None
    created_before: datetime | None


def filter_of(matching: Matching) -> JobFilter:
    """Returns the filter of an action. Raises InvalidRequest, naming each argument."""
    return parse_request(JobFilter, _given(matching))


def query_of(matching: Listed) -> JobQuery:
    """Returns the filter of a list. Raises InvalidRequest, naming each argument."""
    times = {"created_after": matching.get("created_after"), "created_before": matching.get("created_before")}
    given = {key: moment.astimezone() for key, moment in times.items() if moment is not None}
    return parse_request(JobQuery, {**_given(matching), **given})


def _given(matching: Matching) -> dict[str, Any]:
    named = ("q", "name", "owner", "trainer", "init_from", "retry_of", "sweep", "schedule", "starred", "archived")
    found = {key: matching.get(key) for key in named}
    state, labels = matching.get("state"), matching.get("labels")
    found["state"] = [*state] if state else None
    found["label"] = None if labels is None else [f"{key}:{value}" for key, value in labels.items()]
    return {key: value for key, value in found.items() if value is not None}
