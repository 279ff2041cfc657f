"""Whatever a request can make large has a maximum, which its description says."""

import pytest

from bench.costs.cases import API, CASES, CONTROLLER, RELAY
from bench.costs.largest import Document, Unbounded
from bench.costs.operations import MOST_S
from bench.costs.page import SHOWN_BY, limits, limits_on_the_page, measured, row, statuses
from tests.api.service import ApiFixture, usual_document

IN_PARTS = {
    *("get_metrics", "get_curves", "list_logs", "search_logs", "list_jobs"),
    *("submit_batch", "submit_sweep", "validate_sweep", "extend_sweep"),
}
"""Done in parts between which users take turns."""


@pytest.fixture
def document() -> Document:
    return Document(usual_document())


def test_every_text_list_and_object_of_a_body_has_a_maximum(document: Document) -> None:
    found = {
        (operation["operationId"], item.path, item.kind)
        for _, _, operation in document.operations()
        if (body := document.body(operation)) is not None
        for item in document.unbounded(body)
    }
    assert found == set()


def test_every_parameter_of_a_query_has_a_maximum(document: Document) -> None:
    found = {
        (operation["operationId"], parameter["name"], item.path, item.kind)
        for _, _, operation in document.operations()
        for parameter in document.parameters(operation)
        if parameter["in"] == "query"  # paths and headers are bounded by the bytes of a request's head
        for item in document.unbounded(parameter["schema"])
    }
    assert found == set()


def test_each_operation_was_measured_and_costs_little_or_is_read_in_parts(document: Document) -> None:
    operations = {operation["operationId"] for _, _, operation in document.operations()}
    assert operations <= measured().keys()
    dear = {name for name in operations if measured()[name] > MOST_S}
    assert dear <= IN_PARTS


def test_the_largest_bodies_of_sweeps_and_batches_were_accepted_when_they_were_measured() -> None:
    wanted = {"submit_batch": 200, "submit_sweep": 201, "validate_sweep": 200, "extend_sweep": 200}
    assert {operation: statuses()[operation] for operation in wanted} == wanted


def test_each_reader_was_measured_and_costs_little_or_pays_by_itself() -> None:
    payers = {case.what: case.pays for case in CASES}
    assert payers.keys() <= measured().keys()
    assert {
        what for what, payer in payers.items() if measured()[what] > MOST_S and payer in {API, CONTROLLER, RELAY}
    } == set()


def test_each_limit_of_the_contract_stands_with_its_value_and_with_what_shows_its_cost() -> None:
    assert {row(limit) for limit in limits()} == limits_on_the_page()
    assert {*SHOWN_BY.values()} <= measured().keys()


def test_what_has_no_maximum_is_found() -> None:
    document = Document({"components": {"schemas": {"Deep": {"type": "array", "items": {"type": "string"}}}}})
    schema = {
        "type": "object",
        "properties": {
            "free": {"type": "object", "additionalProperties": True, "maxProperties": 3},
            "weighed": {"type": "object", "additionalProperties": True, "x-maxBytes": 100},
            "deep": {"$ref": "#/components/schemas/Deep"},
            "pattern": {"type": "string", "pattern": "^[a-z]{1,9}$"},
            "open": {"type": "string", "pattern": "^[a-z]+$"},
            "number": {"type": "integer"},
        },
        "additionalProperties": False,
    }
    assert set(document.unbounded(schema)) == {
        *(Unbounded("free", kind) for kind in ("keys", "values")),
        *(Unbounded("deep", "list"), Unbounded("deep[]", "text"), Unbounded("open", "text")),
    }


def test_more_than_a_maximum_is_refused(service: ApiFixture) -> None:
    answer = service.client.post("/v1/tokens", json={"scopes": ["jobs:read"] * 101})
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == ["scopes"]
