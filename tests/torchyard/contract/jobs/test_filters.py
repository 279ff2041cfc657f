"""The one filter of lists and actions."""

from datetime import UTC, datetime
import json
from typing import Any

import pytest

from torchyard.client.calls import jobs
from torchyard.client.matching import Listed, filter_of, query_of
from torchyard.contract.errors import InvalidRequest
from torchyard.contract.jobs.filters import JobFilter, JobQuery
from torchyard.contract.jobs.requests import JobActions
from torchyard.contract.states import JobState
from torchyard.contract.wire.schema import parse_request

CHOSEN: dict[str, Any] = {"state": ["queued"], "q": "50%", "name": "a", "owner": "ada", "trainer": "script"}
MATCHING: Listed = {**CHOSEN, "labels": {"team": "a:b"}}  # pyright: ignore[reportAssignmentType]


def test_an_action_reads_the_filter_that_the_client_sends() -> None:
    call = jobs.act("cancel", ids=None, where=filter_of(MATCHING), now=False, labels=None, dry_run=True)
    read = parse_request(JobActions, json.loads(call.content or "")).filter
    assert read == JobFilter(**CHOSEN, label=["team:a:b"])
    assert (read.state, list(read.labels)) == ([JobState.QUEUED], [("team", "a:b")])


def test_a_list_reads_the_filter_that_the_client_sends() -> None:
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    sent = query_of({**MATCHING, "created_after": moment})
    params = {key: value for key, value in jobs.jobs(sent, limit=5).params.items() if value is not None}
    read = JobQuery.model_validate(params)
    assert read.model_dump(exclude_unset=True) == {**CHOSEN, "label": ["team:a:b"], "created_after": moment}


def test_a_condition_that_is_none_is_not_sent() -> None:
    assert query_of({"name": None, "created_after": None, "labels": None}).model_fields_set == set()


@pytest.mark.parametrize(
    "wrong", [{"state": None}, {"q": 5}, {"created_after": "2026-01-31T12:00:00Z"}, {"sort": "name"}]
)
def test_an_action_is_strict(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        parse_request(JobActions, {"action": "cancel", "filter": wrong})


@pytest.mark.parametrize("wrong", [{"state": ["asleep"]}, {"name": "a\0"}, {"labels": {"": "x"}}])
def test_the_client_refuses_a_wrong_argument(wrong: Listed) -> None:
    with pytest.raises(InvalidRequest) as raised:
        query_of(wrong)
    (error,) = raised.value.errors
    assert error.field.startswith(next(iter(wrong)).removesuffix("s"))
