"""Jobs that name GPUs are refused where no worker has such a one."""

from typing import Any

from store.cluster import workers
from tests.api.service import SPEC, ApiFixture, both_databases
from tests.approved import Approved
from tests.rows import each_row

A100 = {"index": 0, "uuid": "GPU-0", "name": "NVIDIA A100-SXM4-80GB", "kind": "cuda"}
SLOT = {"index": 0, "uuid": "cpu-0", "name": "CPU slot", "kind": "cpu"}


def offer(service: ApiFixture, *devices: dict[str, Any], worker: str = "wrk_a") -> None:
    with service.database.write() as session:
        workers.register(session, worker, name=worker, devices=list(devices))


def asking(*gpu: str) -> dict[str, Any]:
    return {**SPEC, "resources": {"gpu": gpu}}


@both_databases
def test_names_that_nobody_has_are_refused_with_those_that_there_are(service: ApiFixture, approved: Approved) -> None:
    assert service.client.post("/v1/jobs", json=asking("H100")).status_code == 201, "without a worker, all is possible"
    offer(service, SLOT)
    answer = service.client.post("/v1/jobs", json=asking("H100"))
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert (error["field"], error["message"]) == ("resources.gpu", approved("worker workers gpu"))
    offer(service, A100, SLOT, worker="wrk_b")
    answer = service.client.post("/v1/jobs", json=asking("H100", "slot"))
    assert answer.json()["errors"][0]["message"] == approved("message")
    accepted = service.client.post("/v1/jobs", json=asking("H100", "A100-80GB"))
    assert accepted.status_code == 201
    assert accepted.json()["spec"]["resources"]["gpu"] == ["H100", "A100-80GB"]


def test_a_retry_names_gpus_that_are_gone(service: ApiFixture) -> None:
    job_id = service.client.post("/v1/jobs", json=asking("H100")).json()["id"]
    service.client.post(f"/v1/jobs/{job_id}/cancel")
    offer(service, A100)
    assert service.client.post(f"/v1/jobs/{job_id}/retry").status_code == 422


@each_row(
    "resources",
    [
        {"gpu": []},
        {"gpu": ["A100", ""]},
        {"gpu": ["A100"], "device": "cpu"},
        {"cpus": 0},
        {"cpus": "NaN"},
        {"memory_gb": -1},
        {"memory_gb": 1e300},
    ],
)
def test_requests_that_make_no_sense_are_refused(service: ApiFixture, resources: dict[str, Any]) -> None:
    assert service.client.post("/v1/jobs", json={**SPEC, "resources": resources}).status_code == 422
