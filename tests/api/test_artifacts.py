"""Artifacts over HTTP: the list, and the files."""

from io import BytesIO
from urllib.parse import quote

import pytest

from store.output.facts import NewArtifact
from tests.api.service import ApiFixture, both_databases, sha256
from tests.api.test_problems import assert_problem
from tests.rows import each_row
from torchyard.contract.states import EndReason

FILES = {"plots/loss.png": b"png" * 1000, "plots/b c.txt": b"", "plotsx": b"x", "größe ?#&.txt": b"odd"}


@pytest.fixture
def path(service: ApiFixture) -> str:
    """The route of the artifacts of a job that has stored some."""
    service.act_as("ada")
    job_id = service.submit()["id"]
    blobs = service.app.state.services.store.blobs
    new = [NewArtifact(path, len(content), blobs.add(BytesIO(content)).sha256) for path, content in FILES.items()]
    service.record(service.start(job_id), artifacts=new)
    return f"/v1/jobs/{job_id}/artifacts"


@both_databases
def test_artifacts_are_listed_in_pages_and_by_their_folder(service: ApiFixture, path: str) -> None:
    whole = service.get(path)["data"]
    assert [(item["path"], item["size"], item["attempt"]) for item in whole] == [
        (name, len(content), 1) for name, content in FILES.items()
    ]
    assert whole[0]["sha256"] == sha256(FILES["plots/loss.png"])
    first = service.get(path, limit=3)
    rest = service.get(path, limit=3, after=first["next"])
    assert (first["data"] + rest["data"], rest["has_more"]) == (whole, False)
    assert [item["path"] for item in service.client.get(f"{path}?path=plots").json()["data"]] == [
        "plots/loss.png",
        "plots/b c.txt",
    ]
    assert service.client.get(f"{path}?path=%00").json()["data"] == []
    assert_problem(service.client.get(path, params={"after": "art_1"}), 422, "invalid_cursor")


def test_each_file_is_sent_whole_and_in_parts_with_its_digest(service: ApiFixture, path: str) -> None:
    for name, content in FILES.items():
        quoted = quote(name)
        answer = service.client.get(f"{path}/{quoted}")
        assert (answer.status_code, answer.content) == (200, content)
        assert answer.headers["etag"] == f'"{sha256(content)}"'
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"].startswith("attachment; filename")
    part = service.client.get(f"{path}/plots/loss.png", headers={"Range": "bytes=1-3"})
    assert (part.status_code, part.content) == (206, b"ngp")
    head = service.client.head(f"{path}/plots/loss.png")
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", "3000")


def test_the_files_of_a_deleted_job_are_gone(service: ApiFixture) -> None:
    service.act_as("ada")
    job_id = service.submit()["id"]
    content = service.app.state.services.store.blobs.add(BytesIO(b"kept"))
    claim = service.start(job_id)
    service.record(claim, artifacts=[NewArtifact("./results/a", 4, content.sha256)])
    service.end(claim, reason=EndReason.COMPLETED)
    kept = f"/v1/jobs/{job_id}/kept/results/a"
    assert service.client.get(kept).content == b"kept"
    assert service.client.delete(f"/v1/jobs/{job_id}").status_code == 204
    for route in (kept, f"/v1/jobs/{job_id}/kept", f"/v1/jobs/{job_id}/keep"):
        assert_problem(service.client.get(route), 404, "not_found")
    assert_problem(service.client.post(f"/v1/jobs/{job_id}/keep", json={"paths": ["results/"]}), 404, "not_found")


@each_row("name", ["plots", "other", "plots/", "..%2F..%2Fetc", "%00", "x" * 3000])
def test_a_path_that_is_not_listed_is_not_found(service: ApiFixture, path: str, name: str) -> None:
    assert_problem(service.client.get(f"{path}/{name}"), 404, "not_found")


def test_artifacts_are_seen_by_those_who_see_the_job(service: ApiFixture, path: str) -> None:
    job = path.removesuffix("/artifacts")
    service.client.patch(job, json={"visibility": "private"})
    service.act_as("bob")
    for hidden in (path, f"{path}/plotsx"):
        assert_problem(service.client.get(hidden), 404, "not_found")
    service.act_as("ada")
    assert service.client.patch(job, json={"visibility": "team"}).status_code == 200
    service.act_as("bob")
    assert service.client.get(f"{path}/plotsx").content == b"x"
