"""`DELETE /v1/jobs/{id}`: deletes an ended job and everything that it stored."""

from store.blobs.holding import all_held
from store.output.facts import MetricPoint, NewLines
from tests.api.service import ApiFixture, sha256
from torchyard.contract.states import EndReason


def ended(service: ApiFixture, *contents: bytes) -> str:
    """Returns an ended job with a point, a line, and a checkpoint for each of `contents`."""
    job_id = service.submit()["id"]
    claim = service.start(job_id)
    saved = [
        service.new_checkpoint(step=step, files={"state.pt": content}, val_loss=0.5)
        for step, content in enumerate(contents, start=1)
    ]
    service.record(
        claim,
        points=[MetricPoint("train/loss", 1, 0.5, 1)],
        lines=[NewLines(0, "stdout", ["hello"])],
        checkpoints=saved,
    )
    service.end(claim, reason=EndReason.COMPLETED)
    return job_id


def blobs(service: ApiFixture) -> set[str]:
    return {path.name for path in service.settings.blobs.glob("??/*")}


def test_a_deleted_job_is_gone_with_everything_that_it_stored(service: ApiFixture) -> None:
    job_id, other = ended(service, b"one", b"two"), ended(service, b"three")
    kept, _ = service.get("/v1/jobs")["data"]
    answer = service.client.delete(f"/v1/jobs/{job_id}")
    assert (answer.status_code, answer.content) == (204, b"")
    parts = ("", "/events", "/metrics", "/logs", "/checkpoints", "/checkpoints/latest/download")
    assert {service.client.get(f"/v1/jobs/{job_id}{part}").status_code for part in parts} == {404}
    assert service.client.delete(f"/v1/jobs/{job_id}").status_code == 404
    assert service.client.post(f"/v1/jobs/{job_id}/cancel").status_code == 404
    assert kept["id"] == other
    assert service.get("/v1/jobs")["data"] == [kept]
    assert blobs(service) == {sha256(b"three")}


def test_bytes_that_another_job_saved_too_stay_until_it_is_deleted(service: ApiFixture) -> None:
    first, second = ended(service, b"same", b"own"), ended(service, b"same")
    service.client.delete(f"/v1/jobs/{first}")
    assert blobs(service) == {sha256(b"same")}
    assert service.client.get(f"/v1/jobs/{second}/checkpoints/latest/download").content == b"same"
    service.client.delete(f"/v1/jobs/{second}")
    assert blobs(service) == set()


def test_a_job_that_has_not_ended_is_not_deleted(service: ApiFixture) -> None:
    job_id = service.submit()["id"]

    def refused() -> str:
        answer = service.client.delete(f"/v1/jobs/{job_id}")
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
        return answer.json()["detail"]

    assert "is queued" in refused()
    claim = service.start(job_id)
    assert "is running" in refused()
    service.end(claim, reason=EndReason.CANCELLED)
    assert service.client.delete(f"/v1/jobs/{job_id}").status_code == 204


def test_another_users_job_is_not_deleted(service: ApiFixture) -> None:
    job_id = ended(service)
    service.act_as("bob")
    assert service.client.delete(f"/v1/jobs/{job_id}").status_code == 404
    assert service.client.delete("/v1/jobs/job_1").status_code == 404
    mine = service.submit()["id"]
    service.client.post(f"/v1/jobs/{mine}/cancel")
    assert service.client.delete(f"/v1/jobs/{mine}").status_code == 204
    service.act_as("admin")
    assert service.get(f"/v1/jobs/{job_id}")["id"] == job_id


def test_bytes_stay_for_a_later_sweep_while_all_are_copied(service: ApiFixture) -> None:
    job_id = ended(service, b"busy")
    parts = service.app.state.services
    with all_held(parts.store.database):
        assert service.client.delete(f"/v1/jobs/{job_id}").status_code == 204
        assert blobs(service) == {sha256(b"busy")}
    ended_later = ended(service, b"later")
    assert service.client.delete(f"/v1/jobs/{ended_later}").status_code == 204
    assert blobs(service) == set()


def test_a_job_is_deleted_even_if_its_blobs_cannot_be(service: ApiFixture) -> None:
    job_id = ended(service, b"stuck")
    service.settings.blobs.rename(service.settings.root / "aside")
    service.settings.blobs.write_text("no folder")
    assert service.client.delete(f"/v1/jobs/{job_id}").status_code == 204
    service.settings.blobs.unlink()
    (service.settings.root / "aside").rename(service.settings.blobs)
    service.client.delete(f"/v1/jobs/{ended(service)}")
    assert blobs(service) == set()
