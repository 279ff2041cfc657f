"""The OpenAPI document is complete, and matches what the service does."""

from collections.abc import Iterator
from typing import Any

import pytest

from api.app import create_app
from api.settings import Settings
from tests.api.service import TOKEN, ApiFixture
from torchyard.contract.errors import all_errors

Operation = tuple[str, str, dict[str, Any]]
NAMING = {("post", "/v1/models"), ("post", "/v1/codes")}
"""They name an object in the body."""
LOGINS = {("post", "/v1/session"), ("post", "/v1/session/codes/check"), ("post", "/v1/join")}
"""Their credential is in the body."""


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    settings = Settings(data_dir=tmp_path_factory.mktemp("data"), token=TOKEN)  # pyright: ignore[reportArgumentType]
    return create_app(settings).openapi()


def operations(document: dict[str, Any]) -> Iterator[Operation]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield method, path, operation


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "$ref":
                yield item
            else:
                yield from references(item)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


def test_every_reference_resolves_and_every_component_is_used(document: dict[str, Any]) -> None:
    found = set(references(document))
    for reference in found:
        place: Any = document
        for part in reference.removeprefix("#/").split("/"):
            place = place[part]
    for kind in ("schemas", "headers", "examples", "parameters"):
        unused = {name for name in document["components"][kind] if f"#/components/{kind}/{name}" not in found}
        assert unused == set()


def test_every_operation_has_a_stable_name_a_tag_and_a_summary(document: dict[str, Any]) -> None:
    tags = {tag["name"] for tag in document["tags"]}
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(names) == len(set(names))
    assert {"submit_job", "get_job", "cancel_job", "download_checkpoint", "head_download_checkpoint"} <= set(names)
    for _, path, operation in operations(document):
        assert set(operation["tags"]) <= tags, path
        assert operation["description"], path


def test_every_parameter_is_described(document: dict[str, Any]) -> None:
    for _, path, operation in operations(document):
        for parameter in operation.get("parameters", []):
            assert "$ref" in parameter or parameter.get("description"), (path, parameter)


def test_a_field_of_a_view_is_described_by_the_string_below_it(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    assert schemas["EstimateView"]["properties"]["made_at"].get("description") is None
    for view in ("JobSummary", "JobView"):  # a base's string holds for what inherits the field
        assert schemas[view]["properties"]["starred"]["description"] == "Whether the job has your star."


def test_every_error_is_the_shared_problem_of_its_status(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        for status, response in operation["responses"].items():
            if int(status) >= 400 and (path, status) != ("/readyz", "503"):
                assert response == {"$ref": f"#/components/responses/Problem{status}"}, (method, path)
            else:
                assert "X-Request-ID" in response["headers"], (method, path)


def test_every_answer_is_typed(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        for status, response in operation["responses"].items():
            if "$ref" in response or method == "head" or status in {"204", "304"}:
                continue
            assert response["content"], (method, path, status)
            for media_type, content in response["content"].items():
                assert content.get("schema") or content.get("itemSchema"), (method, path, status, media_type)


def test_an_operations_statuses_match_its_parameters_and_body(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        statuses = {int(status) for status in operation["responses"]}
        assert (401 in statuses) == path.startswith(("/v1/", "/metrics")), path
        assert ("security" in operation) == (401 in statuses and (method, path) not in LOGINS), path
        names_an_object = "{" in path or path == "/v1/metrics" or (method, path) in NAMING
        assert (404 in statuses) == names_an_object, (method, path)
        assert 413 in statuses or "requestBody" not in operation, (method, path)


def test_each_code_has_an_example_that_is_a_problem(document: dict[str, Any]) -> None:
    shared = document["components"]["responses"]
    for name, response in shared.items():
        content = response["content"]["application/problem+json"]
        assert content["schema"] == {"$ref": "#/components/schemas/Problem"}
        for code, reference in content["examples"].items():
            example = document["components"]["examples"][code]
            assert reference == {"$ref": f"#/components/examples/{code}"}
            assert f"Problem{example['value']['status']}" == name
            assert example["value"]["code"] == code
    assert "Retry-After" in shared["Problem503"]["headers"]
    assert "WWW-Authenticate" in shared["Problem401"]["headers"]
    assert document["components"]["schemas"]["Problem"]["properties"]["errors"]["items"]["$ref"].endswith("/FieldError")


def test_every_error_has_an_example_or_is_never_answered(document: dict[str, Any]) -> None:
    never = {"stale_claim", "data_error", "config_error", "export_error", "user_error", "server_error", "unreachable"}
    never.add("reach_ended")  # of a client
    codes = {kind.code for kind in all_errors()}
    assert codes - never == set(document["components"]["examples"])


def test_an_error_is_answered_as_documented(service: ApiFixture) -> None:
    document = service.get("/openapi.json")
    answer = service.client.post("/v1/jobs", json={"trainer": "image-classification", "priority": 101})
    example = document["components"]["examples"]["invalid_spec"]["value"]
    assert answer.json().keys() == example.keys()
    assert {**answer.json(), "request_id": "", "errors": []} == {**example, "request_id": "", "errors": []}
    assert answer.json()["errors"][0].keys() == example["errors"][0].keys()


def test_a_job_and_its_row_have_the_fields_that_the_document_says(
    service: ApiFixture, document: dict[str, Any]
) -> None:
    schemas = document["components"]["schemas"]
    job = service.submit()
    whole = service.client.get(f"/v1/jobs/{job['id']}").json()
    (row,) = service.client.get("/v1/jobs").json()["data"]
    (with_columns,) = service.client.get("/v1/jobs", params={"columns": "label:a"}).json()["data"]
    assert {*whole} == {*job} == {*schemas["JobView"]["properties"]} - {"columns", "waits_for"}
    assert {*row} == {*schemas["JobSummary"]["properties"]} - {"columns"}
    assert {*with_columns} == {*schemas["JobSummary"]["properties"]}
