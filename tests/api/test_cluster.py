"""Trainers, workers, health, and the description of it all."""

import pytest

from store.ids import new_id
from store.rows import workers
from tests.api.house import House
from torchyard.contract.job import EndReason
from torchyard.contract.spec import CONFIGS
from torchyard.contract.views import StartsView


def test_trainers_are_listed_with_the_schema_of_their_configuration(house: House) -> None:
    listed = {item["name"]: item for item in house.get("/v1/trainers")["data"]}
    assert set(listed) == set(CONFIGS)
    for item in listed.values():
        schema = item["config_schema"]
        assert item["description"]
        for part in (schema, *schema.get("$defs", {}).values()):
            assert part["additionalProperties"] is False
            # What may be left out says what it then is.
            assert {name for name, field in part["properties"].items() if "default" not in field} == {
                *part.get("required", [])
            }
            assert [
                name for name, field in part["properties"].items() if not {"description", "$ref"} & set(field)
            ] == []


@pytest.mark.parametrize(
    ("trainer", "epochs", "needs_a_source", "own"),
    [
        ("image-classification", 3, False, "mixup"),
        ("segmentation", 20, True, "dice"),
        ("text-classification", 3, True, "label_smoothing"),
    ],
)
def test_a_recipes_schema_says_what_each_key_does(
    house: House, trainer: str, epochs: int, needs_a_source: bool, own: str
) -> None:
    (schema,) = (item["config_schema"] for item in house.get("/v1/trainers")["data"] if item["name"] == trainer)
    sections = {
        name: schema["$defs"][field["$ref"].rpartition("/")[2]]["properties"]
        for name, field in schema["properties"].items()
        if "$ref" in field
    }
    training, data = sections["training"], sections["data"]
    assert training["epochs"]["default"] == schema["properties"]["training"]["default"]["epochs"] == epochs
    assert "halve it" in training["auto_batch"]["description"]
    assert ("default" not in data["source"]) is needs_a_source
    assert "file:///" in data["source"]["description"]
    assert own in sections["loss"]
    assert {"ddp", "local_sgd", "fsdp"} == set(sections["distributed"]["strategy"]["enum"])
    assert {"ema", "early_stopping"} <= set(schema["properties"])


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


def test_a_worker_tells_how_its_jobs_start(house: House) -> None:
    house.start(house.submit()["id"])
    path = f"/v1/workers/{house.worker_id}"
    assert house.get(path)["starts"] is None  # as of an older version, which tells nothing
    starts = StartsView(mode="cold", why="the warm process is starting", forks=3).model_dump(mode="json")
    with house.database.write() as session:
        workers.heartbeat(session, house.worker_id, devices=[], starts=starts)
    assert house.get(path)["starts"] == starts


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


def test_a_worker_drains_and_takes_jobs_again(house: House) -> None:
    claim = house.start(house.submit()["id"])
    path = f"/v1/workers/{house.worker_id}"
    drained = house.client.post(f"{path}/drain")
    assert (drained.status_code, drained.json()["state"]) == (200, "draining")
    assert house.client.post(f"{path}/drain").json()["state"] == house.get(path)["state"] == "draining"
    assert drained.json()["devices"][0]["job_id"] == claim.job_id
    assert house.client.post(f"{path}/undrain").json()["state"] == "ready"
    for malformed in (new_id("wrk"), "nobody"):
        assert house.client.post(f"/v1/workers/{malformed}/drain").status_code == 404
    house.act_as("eve")
    refused = house.client.post(f"{path}/drain")
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert house.get(path)["state"] == "ready"
