"""Trainers, workers, and readiness."""

from pathlib import Path
from typing import Any, cast

import jsonschema_rs
from sqlalchemy import update

from store.cluster import device_history, workers
from store.cluster.facts import Sample
from store.ids import new_id
from store.queue import reservations
from store.queue.reservations import Change
from store.tables import Attempt
from tests.api.service import ApiFixture, both_databases
from tests.approved import Approved
from tests.rows import each_row
from tests.servers import administered
from torchyard.contract.cluster.devices import CachesReport, PoolNodes, PoolReport, PoolRules, StartsReport
from torchyard.contract.spec.spec import CONFIGS
from torchyard.contract.states import EndReason
from torchyard.contract.team.roles import Role
from torchyard.host.redis_rules import CHANNELS, COMMANDS, KEYS


def test_trainers_are_listed_with_the_schema_of_their_configuration(service: ApiFixture) -> None:
    listed = {item["name"]: item for item in service.get("/v1/trainers")["data"]}
    assert set(listed) == set(CONFIGS)
    for item in listed.values():
        schema = item["config_schema"]
        assert item["description"]
        for part in (schema, *schema.get("$defs", {}).values()):
            assert part["additionalProperties"] is False
            # A key that may be omitted has a default.
            assert {name for name, field in part["properties"].items() if "default" not in field} == {
                *part.get("required", [])
            }
            assert [
                name for name, field in part["properties"].items() if not {"description", "$ref"} & set(field)
            ] == []


def test_every_default_of_a_trainers_schema_is_valid(service: ApiFixture) -> None:
    for item in service.get("/v1/trainers")["data"]:
        check_defaults(item["config_schema"], item["config_schema"])


def test_the_schema_of_a_spec_has_every_trainer_and_accepts_resolved_specs(service: ApiFixture) -> None:
    answer = service.client.get("/v1/spec/schema")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    schema = answer.json()
    assert {*schema["discriminator"]["mapping"]} == {*CONFIGS}
    check_defaults(schema, schema)
    validator = jsonschema_rs.validator_for(schema)
    for needed in (
        {"trainer": "image-classification"},
        {"trainer": "segmentation", "config": {"data": {"source": "file:///data"}}},
        {"trainer": "script", "config": {"code": "file:///code"}, "time_limit": "90m", "env": {"A": {"secret": "B"}}},
    ):
        resolved = service.client.post("/v1/jobs/validate", json=needed).json()["spec"]
        validator.validate(resolved)
        assert not validator.is_valid({**resolved, "time_limit": "PT10M"})
        assert not validator.is_valid({**resolved, "surprise": 1})
    held = service.client.get("/v1/spec/schema", headers={"If-None-Match": answer.headers["etag"]})
    assert held.status_code == 304


def test_the_schema_of_a_sweep_says_what_each_key_is(service: ApiFixture) -> None:
    schema = service.get("/v1/spec/schema?of=sweep")
    check_defaults(schema, schema)
    sweep = {"parameters": {"config.optimizer.lr": [0.1]}, "job": {"trainer": "image-classification"}}
    resolved = service.client.post("/v1/sweeps/validate", json=sweep).json()["spec"]
    jsonschema_rs.validate(schema, resolved)
    halving = schema["$defs"]["Halving"]["properties"]
    assert [name for name, field in {**schema["properties"], **halving}.items() if "description" not in field] == []
    assert service.client.get("/v1/spec/schema?of=model").status_code == 422


def check_defaults(node: Any, schema: dict[str, Any]) -> None:
    """Checks that each default in a part of the schema is valid where it stands."""
    if isinstance(node, list):
        for item in cast(list[Any], node):
            check_defaults(item, schema)
    if not isinstance(node, dict):
        return
    here = cast(dict[str, Any], node)
    for field in here.get("properties", {}).values():
        if "default" in field:
            jsonschema_rs.validate({**field, "$defs": schema["$defs"]}, field["default"])
    for item in here.values():
        check_defaults(item, schema)


@each_row(
    ("trainer", "epochs", "needs_a_source", "own"),
    [
        ("image-classification", 3, False, "mixup"),
        ("segmentation", 20, True, "dice"),
        ("text-classification", 3, True, "label_smoothing"),
        ("causal-lm", 1, True, "chunk_tokens"),
    ],
)
def test_a_recipes_schema_describes_each_key(
    service: ApiFixture, trainer: str, epochs: int, needs_a_source: bool, own: str
) -> None:
    (schema,) = (item["config_schema"] for item in service.get("/v1/trainers")["data"] if item["name"] == trainer)
    sections = {
        name: schema["$defs"][field["$ref"].rpartition("/")[2]]["properties"]
        for name, field in schema["properties"].items()
        if "$ref" in field
    }
    training, data = sections["training"], sections["data"]
    assert training["epochs"]["default"] == schema["properties"]["training"]["default"]["epochs"] == epochs
    assert "halve micro-batches" in training["auto_batch"]["description"]
    assert ("default" not in data["source"]) is needs_a_source
    assert "file:///" in data["source"]["description"]
    assert own in sections["loss"]
    assert {"ddp", "local_sgd", "fsdp"} == set(sections["distributed"]["strategy"]["enum"])
    assert {"ema", "early_stopping"} <= set(schema["properties"])


def test_a_worker_shows_its_devices_and_the_jobs_that_hold_them(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    claim = service.start(job_id, device="cpu-1")
    worker = service.get(f"/v1/workers/{service.worker_id}")
    assert (worker["name"], worker["state"]) == ("box-a", "ready")
    assert [(device["uuid"], device["job_id"]) for device in worker["devices"]] == [("cpu-0", None), ("cpu-1", job_id)]
    assert service.get("/v1/workers")["data"] == [worker]
    service.end(claim, reason=EndReason.COMPLETED)
    freed = service.get(f"/v1/workers/{service.worker_id}")
    assert [device["job_id"] for device in freed["devices"]] == [None, None]


def test_a_worker_names_the_job_of_a_reservation_to_who_may_list_the_job(service: ApiFixture) -> None:
    service.end(service.start(service.submit()["id"]), reason=EndReason.COMPLETED)
    job_id = service.submit(name="merger")["id"]
    with service.database.write() as session:
        reservations.reserve(session, [Change(service.worker_id, "cpu", None, job_id, due=5, bound=9)], known=set())
    path, kept = f"/v1/workers/{service.worker_id}", {"kind": "cpu", "owner": "admin"}
    assert service.get(path)["kept"] == [{**kept, "job_id": job_id, "name": "merger"}]
    service.act_as("bob")
    assert service.get(path)["kept"] == [{**kept, "job_id": None, "name": None}]


def test_a_device_says_that_its_job_is_a_guest(service: ApiFixture) -> None:
    service.start(service.submit()["id"])
    path = f"/v1/workers/{service.worker_id}"
    assert service.get(path)["devices"][0]["holder"]["guest"] is False
    with service.database.write() as session:
        session.execute(update(Attempt).values(guest=True))
    assert service.get(path)["devices"][0]["holder"]["guest"] is True


def test_a_worker_shows_how_its_jobs_start(service: ApiFixture) -> None:
    service.start(service.submit()["id"])
    path = f"/v1/workers/{service.worker_id}"
    assert service.get(path)["starts"] is None  # the first heartbeat reports it
    caches = CachesReport(packages_bytes=1 << 30, total_bytes=3 << 30, limit_bytes=20 << 30)
    starts = StartsReport(mode="cold", why="the warm process is starting", forks=3, caches=caches).to_dict()
    with service.database.write() as session:
        workers.heartbeat(session, service.worker_id, devices=[], starts=starts)
    assert service.get(path)["starts"] == starts


def test_a_pool_is_a_worker_without_devices_that_says_what_jobs_may_ask_for(service: ApiFixture) -> None:
    rules = PoolRules(accounts=["vision"], account_of={"ada": "of-ada"})
    nodes = PoolNodes(count=3, devices=4, gpus=["a100"], cpus=64, memory_gb=512.0)
    report = PoolReport(partition="main", kind="cuda", nodes=nodes, max_time_s=86_400, rules=rules)
    with service.database.write() as session:
        workers.register_pool(session, service.worker_id, name="gpu", holder="n0/boot", pool=report.to_dict())
    found = service.get(f"/v1/workers/{service.worker_id}")
    assert (found["name"], found["state"], found["devices"]) == ("gpu", "ready", [])
    told: dict[str, Any] = report.to_dict() | {"waiting": 0, "running": 0}
    told["rules"] = {key: value for key, value in told["rules"].items() if key != "account_of"}  # who pays for others
    assert found["pool"] == told
    assert service.get(f"/v1/workers/{service.worker_id}/history")["devices"] == []


def test_workers_are_listed_in_pages(service: ApiFixture) -> None:
    ids = [new_id("wrk") for _ in range(3)]
    gpu = {"index": 0, "uuid": "GPU-1", "name": "H200", "kind": "cuda", "utilization": 0.5, "blocked": "held by pid 7"}
    for number, worker_id in enumerate(ids):
        with service.database.write() as session:
            workers.register(session, worker_id, name=f"box-{number}", devices=[gpu])
    page = service.get("/v1/workers", limit=2)
    rest = service.get("/v1/workers", limit=2, after=page["next"])
    assert [worker["id"] for worker in page["data"] + rest["data"]] == ids
    assert page["data"][0]["devices"][0]["blocked"] == "held by pid 7"


def test_the_service_is_ready_when_the_database_and_redis_answer(service: ApiFixture) -> None:
    assert service.get("/readyz") == {"status": "ok", "database": "ok", "redis": "ok"}


def test_rules_that_the_user_of_redis_lacks_are_named_to_who_asks_whether_it_is_ready(
    service: ApiFixture, tmp_path: Path, redis_url: str, approved: Approved
) -> None:
    socket = redis_url.rpartition("@")[2]
    with administered(redis_url) as redis:
        rules = [KEYS, CHANNELS, *(f"+{name}" for name in COMMANDS if name != "evalsha")]
        redis.execute_command("ACL", "SETUSER", "limited", "reset", "on", ">p", "resetchannels", *rules)
    limited = ApiFixture(tmp_path, service.database, f"unix://limited:p@{socket}")
    with limited.client:
        assert limited.submit()["state"] == "queued"
        ready = limited.get("/readyz")
    assert (ready["status"], ready["database"]) == ("degraded", "ok")
    assert ready["redis"] == approved("redis")


def test_a_worker_drains_and_takes_jobs_again(service: ApiFixture) -> None:
    claim = service.start(service.submit()["id"])
    path = f"/v1/workers/{service.worker_id}"
    drained = service.client.post(f"{path}/drain")
    assert (drained.status_code, drained.json()["state"]) == (200, "draining")
    assert service.client.post(f"{path}/drain").json()["state"] == service.get(path)["state"] == "draining"
    assert drained.json()["devices"][0]["job_id"] == claim.job_id
    assert service.client.post(f"{path}/undrain").json()["state"] == "ready"
    for malformed in (new_id("wrk"), "nobody"):
        assert service.client.post(f"/v1/workers/{malformed}/drain").status_code == 404
    service.act_as("eve")
    refused = service.client.post(f"{path}/drain")
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert service.get(path)["state"] == "ready"


def test_a_worker_takes_jobs_of_the_users_that_are_named(service: ApiFixture) -> None:
    service.start(service.submit()["id"])
    path = f"/v1/workers/{service.worker_id}"
    assert service.get(path)["users"] is None
    limited = service.client.put(f"{path}/users", json={"users": ["bob", "alice", "bob"]})
    assert (limited.status_code, limited.json()["users"]) == (200, ["alice", "bob"])
    for wrong in ({}, {"users": "bob"}, {"users": [""]}, {"users": ["a"] * 1001}):
        assert service.client.put(f"{path}/users", json=wrong).status_code == 422
    assert service.client.put(f"{path}/users", json={"users": None}).json()["users"] is None
    service.act_as("eve")
    assert service.client.put(f"{path}/users", json={"users": ["eve"]}).status_code == 403


@both_databases
def test_the_history_of_a_worker_names_the_jobs_that_the_caller_may_list(service: ApiFixture) -> None:
    service.act_as("alice")
    job_id = service.submit()["id"]
    service.start(job_id)
    slots = [
        {"index": index, "uuid": f"cpu-{index}", "name": "CPU slot", "kind": "cpu", "utilization": used}
        | {"memory_used_bytes": None}
        | ({} if used is None else {"power_watts": 215.5})
        for index, used in enumerate((0.5, None))
    ]
    with service.database.write() as session:
        workers.heartbeat(session, service.worker_id, devices=slots, starts={})
        device_history.add_samples(session, service.worker_id, [Sample(0.0, slots)])
    path = f"/v1/workers/{service.worker_id}/history"
    shown = service.get(path)
    assert (shown["worker_id"], shown["resolution_seconds"]) == (service.worker_id, 5)
    first, second = shown["devices"]
    assert (first["uuid"], first["index"], first["name"], first["kind"]) == ("cpu-0", 0, "CPU slot", "cpu")
    [time] = first["columns"].pop("time")
    assert time % 5 == 0
    assert first["columns"] == {
        "utilization": [0.5],
        "utilization_max": [0.5],
        "memory_used": [None],
        "power_watts": [215.5],
        "job_id": [job_id],
    }
    assert {second["columns"][name][0] for name in ("utilization", "power_watts", "job_id")} == {None}
    later = {"from": "2999-01-01T00:00:00Z"}
    assert service.get(path, **later)["devices"][0]["columns"]["time"] == []
    assert service.client.get(path, params={"from": "yesterday"}).status_code == 422
    assert service.client.get(f"/v1/workers/{new_id('wrk')}/history").status_code == 404
    service.act_as("bob")
    assert service.get(path)["devices"][0]["columns"]["job_id"] == [None]
    assert job_id not in service.client.get(path).text
    service.act_as("olga", Role.OPERATOR)
    assert service.get(path)["devices"][0]["columns"]["job_id"] == [job_id]
