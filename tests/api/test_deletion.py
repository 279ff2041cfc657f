"""`DELETE /v1/jobs/{id}`: a job that has ended, and all that it stored."""

from store.rows.logs import NewLines
from store.rows.metrics import MetricPoint
from tests.api.house import House, sha256
from torchyard.contract.job import EndReason


def ended(house: House, *contents: bytes) -> str:
    """A job that has stored something of everything, and a checkpoint with each of `contents`."""
    job_id = house.submit()["id"]
    claim = house.start(job_id)
    saved = [
        house.new_checkpoint(step=step, files={"state.pt": content}, val_loss=0.5)
        for step, content in enumerate(contents, start=1)
    ]
    house.record(
        claim,
        points=[MetricPoint("train/loss", 1, 0.5, 1)],
        lines=[NewLines(0, "stdout", ["hello"])],
        checkpoints=saved,
    )
    house.end(claim, reason=EndReason.COMPLETED)
    return job_id


def blobs(house: House) -> set[str]:
    return {path.name for path in house.settings.blobs.glob("??/*")}


def test_a_deleted_job_is_gone_with_all_that_it_stored(house: House) -> None:
    job_id, other = ended(house, b"one", b"two"), ended(house, b"three")
    kept = house.get(f"/v1/jobs/{other}")
    answer = house.client.delete(f"/v1/jobs/{job_id}")
    assert (answer.status_code, answer.content) == (204, b"")
    parts = ("", "/events", "/metrics", "/logs", "/checkpoints", "/checkpoints/latest/download")
    assert {house.client.get(f"/v1/jobs/{job_id}{part}").status_code for part in parts} == {404}
    assert house.client.delete(f"/v1/jobs/{job_id}").status_code == 404
    assert house.client.post(f"/v1/jobs/{job_id}/cancel").status_code == 404
    assert house.get("/v1/jobs")["data"] == [kept]
    assert blobs(house) == {sha256(b"three")}


def test_what_another_job_saved_too_stays_until_that_is_deleted(house: House) -> None:
    first, second = ended(house, b"same", b"own"), ended(house, b"same")
    house.client.delete(f"/v1/jobs/{first}")
    assert blobs(house) == {sha256(b"same")}
    assert house.client.get(f"/v1/jobs/{second}/checkpoints/latest/download").content == b"same"
    house.client.delete(f"/v1/jobs/{second}")
    assert blobs(house) == set()


def test_a_job_that_has_not_ended_is_not_deleted(house: House) -> None:
    job_id = house.submit()["id"]

    def refused() -> str:
        answer = house.client.delete(f"/v1/jobs/{job_id}")
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
        return answer.json()["detail"]

    assert "is queued" in refused()
    claim = house.start(job_id)
    assert "is running" in refused()
    house.end(claim, reason=EndReason.CANCELLED)
    assert house.client.delete(f"/v1/jobs/{job_id}").status_code == 204


def test_another_users_job_is_not_deleted(house: House) -> None:
    job_id = ended(house)
    house.act_as("bob")
    assert house.client.delete(f"/v1/jobs/{job_id}").status_code == 404
    assert house.client.delete("/v1/jobs/job_1").status_code == 404
    mine = house.submit()["id"]
    house.client.post(f"/v1/jobs/{mine}/cancel")
    assert house.client.delete(f"/v1/jobs/{mine}").status_code == 204
    house.app.dependency_overrides.clear()
    assert house.get(f"/v1/jobs/{job_id}")["id"] == job_id


def test_while_a_relay_is_at_work_the_bytes_stay_for_a_later_sweep(house: House) -> None:
    job_id = ended(house, b"busy")
    parts = house.app.state.services
    with parts.store.blobs.shared_lock():
        assert house.client.delete(f"/v1/jobs/{job_id}").status_code == 204
        assert blobs(house) == {sha256(b"busy")}
    ended_later = ended(house, b"later")
    assert house.client.delete(f"/v1/jobs/{ended_later}").status_code == 204
    assert blobs(house) == set()


def test_a_blob_store_that_cannot_be_written_does_not_keep_a_job(house: House) -> None:
    job_id = ended(house, b"stuck")
    house.settings.blobs.rename(house.settings.root / "aside")
    house.settings.blobs.write_text("no folder")
    assert house.client.delete(f"/v1/jobs/{job_id}").status_code == 204
    house.settings.blobs.unlink()
    (house.settings.root / "aside").rename(house.settings.blobs)
    house.client.delete(f"/v1/jobs/{ended(house)}")
    assert blobs(house) == set()
