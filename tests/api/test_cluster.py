"""Trainers, workers, health, and the description of it all."""

from store import workers
from store.ids import new_id
from tests.api.house import House
from torchyard.job import EndReason
from torchyard.spec import CONFIGS


def test_trainers_are_listed_with_the_schema_of_their_configuration(house: House) -> None:
    listed = {item["name"]: item for item in house.get("/v1/trainers")["data"]}
    assert set(listed) == set(CONFIGS)
    images = listed["image-classification"]
    assert "classifier of images" in images["description"]
    assert images["config_schema"]["properties"]["training"]["default"]["epochs"] == 3
    assert images["config_schema"]["additionalProperties"] is False


def test_a_worker_shows_its_devices_and_who_holds_them(house: House) -> None:
    job_id = house.submit()["id"]
    claim = house.start(job_id, device="cpu-1")
    worker = house.get(f"/v1/workers/{house.worker_id}")
    assert (worker["name"], worker["state"]) == ("box-a", "ready")
    assert [(device["uuid"], device["job_id"]) for device in worker["devices"]] == [("cpu-0", None), ("cpu-1", job_id)]
    assert house.get("/v1/workers")["data"] == [worker]
    house.end(claim, reason=EndReason.COMPLETED)
    freed = house.get(f"/v1/workers/{house.worker_id}")
    assert [device["job_id"] for device in freed["devices"]] == [None, None]


def test_workers_come_in_pages(house: House) -> None:
    ids = [new_id("wrk") for _ in range(3)]
    gpu = {"index": 0, "uuid": "GPU-1", "name": "H200", "kind": "cuda", "utilization": 0.5, "blocked": "held by pid 7"}
    for number, worker_id in enumerate(ids):
        with house.database.write() as session:
            workers.register(session, worker_id, name=f"box-{number}", devices=[gpu])
    page = house.get("/v1/workers", limit=2)
    rest = house.get("/v1/workers", limit=2, after=page["next"])
    assert [worker["id"] for worker in page["data"] + rest["data"]] == ids
    assert page["data"][0]["devices"][0]["blocked"] == "held by pid 7"


def test_ready_when_all_parts_answer(house: House) -> None:
    assert house.get("/readyz") == {"status": "ok", "database": "ok", "redis": "ok"}
