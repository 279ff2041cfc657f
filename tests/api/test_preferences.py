"""What the page keeps for each user."""

from typing import Any

import pytest

from tests.api.service import ApiFixture, both_databases
from tests.rows import each_row
from torchyard.contract.errors import InvalidRequest
from torchyard.contract.team.requests import PreferenceChanges
from torchyard.contract.wire.schema import parse_request


def kept(service: ApiFixture) -> Any:
    return service.get("/v1/me", preferences="true")["preferences"]


def keep(service: ApiFixture, preferences: Any) -> int:
    return service.client.patch("/v1/me/preferences", json={"preferences": preferences}).status_code


@both_databases
def test_each_user_has_preferences_of_their_own(service: ApiFixture) -> None:
    administrators = {"charts": {"folded": ["lr"], "pinned": []}, "runs": {"columns": ["metric:val/iou:best"]}}
    assert kept(service) == {}
    assert keep(service, administrators) == 204
    service.act_as("alice")
    assert kept(service) == {}
    assert keep(service, {"charts": 1}) == 204
    assert keep(service, {"ünï": "\u2028"}) == 204
    assert kept(service) == {"charts": 1, "ünï": "\u2028"}
    assert keep(service, {"charts": None}) == 204
    assert kept(service) == {"ünï": "\u2028"}
    service.act_as("admin")
    assert kept(service) == administrators


def test_they_are_read_when_asked_for_and_at_a_login(service: ApiFixture) -> None:
    made = service.client.post("/v1/tokens", json={}).json()
    assert keep(service, {"theme": "dark"}) == 204
    assert service.get("/v1/me")["preferences"] is None
    opened = service.client.post("/v1/session", json={"token": made["token"]}).json()
    assert opened["preferences"] == {"theme": "dark"}


@each_row(
    "wrong", [["a"], "a", None, {"a\x00": 1}, {"a": [[{"b": "\x00"}]]}, {"a": 2**70}, {"a": [{"b": -(2**53) - 1}]}]
)
def test_what_is_no_object_or_cannot_be_stored_is_refused(service: ApiFixture, wrong: Any) -> None:
    assert keep(service, {"a": "x" * 8_000}) == 204
    assert keep(service, wrong) == 422
    assert kept(service) == {"a": "x" * 8_000}


def test_they_have_a_greatest_size() -> None:
    fits = {"a": "ü" * 16_379}
    assert parse_request(PreferenceChanges, {"preferences": fits}).preferences == fits
    for too_large in ({"a": "ü" * 16_380 + "x"}, {"a": {str(number): 0 for number in range(3000)}}):
        with pytest.raises(InvalidRequest) as caught:
            parse_request(PreferenceChanges, {"preferences": too_large})
        assert [error.field.split(".")[0] for error in caught.value.errors] == ["preferences"]


def test_names_that_were_sent_before_count_for_the_greatest_size(service: ApiFixture) -> None:
    large = "x" * 8_000
    assert [keep(service, {name: large}) for name in "abcde"] == [204, 204, 204, 204, 422]
    assert keep(service, {"a": None, "e": large}) == 204
    assert [*kept(service)] == [*"bcde"]
