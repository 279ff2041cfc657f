"""Jobs for pools: which is chosen, and what is refused at submission, each by the name of its field."""

from collections.abc import Sequence
import json
from typing import Any

import pytest
from sqlalchemy import update

from store.cluster import workers
from store.tables import Worker
from tests.api.service import SPEC, ApiFixture
from tests.approved import Approved
from tests.databases import quick_on_sqlite
from torchyard.contract.cluster.devices import PoolNodes, PoolReport, PoolRules

RULES = PoolRules(
    accounts=["lab"], qos=["normal"], constraints=["a100&nvlink"], reservations=["week"], account_of={"ada": "ada-acct"}
)
GPU_NODES = PoolNodes(count=4, devices=8, gpus=["nvidia_a100_80gb", "h100"], cpus=64, memory_gb=500.5)
GPU = PoolReport(partition="gpu", kind="cuda", nodes=GPU_NODES, max_time_s=36_000, rules=RULES)
CPU = PoolReport(partition="cpu", kind="cpu", nodes=PoolNodes(count=2, devices=4))


def serve(service: ApiFixture, *pools: PoolReport) -> None:
    with service.database.write() as session:
        for pool in pools:
            name = pool.partition
            workers.register_pool(session, f"wrk_{name}", name=name, holder="head", pool=pool.to_dict())


def age(service: ApiFixture, name: str, *, hours: int) -> None:
    """Lets the pool have been seen last so long ago."""
    earlier = Worker.seen_at - hours * 3_600_000_000
    with service.database.write() as session:
        session.execute(update(Worker).where(Worker.name == name).values(seen_at=earlier))


def errors(service: ApiFixture, spec: dict[str, Any], path: str = "/v1/jobs") -> dict[str, str]:
    """Submits a spec that is refused, and returns what is wrong with each field."""
    answer = service.client.post(path, json={**SPEC, **spec})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_spec"), answer.text
    return {error["field"]: error["message"] for error in answer.json()["errors"]}


@quick_on_sqlite
def test_a_job_over_several_nodes_gets_the_only_pool(service: ApiFixture, approved: Approved) -> None:
    asked = {"resources": {"nodes": 2, "devices_per_node": 4}}
    assert errors(service, asked)["resources.nodes"] == approved("resources_nodes")
    serve(service, GPU)
    job = service.submit(**asked)
    assert job["spec"]["resources"] == {
        "nodes": 2,
        "devices_per_node": 4,
        "device": "cuda",
        "min_memory_gb": None,
        "pool": "gpu",
    }
    assert job["spec"]["time_limit"] == "10h", "the default, cut to what the pool allows"
    assert service.submit(resources={"devices_per_node": 4})["spec"]["resources"].get("pool") is None
    validated = service.client.post("/v1/jobs/validate", json={**SPEC, **asked}).json()["spec"]
    assert validated == job["spec"]
    assert service.submit(**validated)["spec"] == validated, "a resolved spec is itself valid"
    serve(service, CPU)
    assert errors(service, asked) == {"resources.pool": approved("resources_pool")}
    assert service.submit(resources={"nodes": 2, "pool": "cpu"})["spec"]["resources"]["device"] == "cpu"


def test_a_pool_takes_a_job_at_once_and_says_itself_when_it_starts(service: ApiFixture, approved: Approved) -> None:
    serve(service, GPU)
    asked = {"resources": {"devices_per_node": 4, "pool": "gpu"}}
    told = service.client.post("/v1/jobs/validate?place=true", json={**SPEC, **asked}).json()["waits_for"]
    assert (told["fits"], told["code"], told["position"]) == (False, "pool_next", 1)
    assert told["message"] == approved("message")


def test_a_pool_may_be_away_for_a_day(service: ApiFixture, approved: Approved) -> None:
    serve(service, GPU, CPU)
    age(service, "gpu", hours=23)
    assert service.submit(resources={"pool": "gpu"})["state"] == "queued"
    age(service, "gpu", hours=1)
    assert errors(service, {"resources": {"pool": "gpu"}}) == {"resources.pool": approved("resources_pool")}
    assert service.submit(resources={"nodes": 2})["spec"]["resources"]["pool"] == "cpu"


@pytest.mark.parametrize(
    "spec",
    [
        {"resources": {"pool": "gpux"}},
        {"resources": {"nodes": 5}},
        {"resources": {"devices_per_node": 9}},
        {"resources": {"device": "cpu"}},
        {"resources": {"gpu": ["H200", "B200"]}},
        {"resources": {"cpus": 65}},
        {"resources": {"memory_gb": 501}},
        {"resources": {"min_memory_gb": 40}},
        {"time_limit": "11h"},
        {"launcher": "warm"},
        {"slurm": {"account": "other"}},
        {"slurm": {"qos": "high"}},
        {"slurm": {"constraint": "a100"}},
        {"slurm": {"reservation": "night"}},
        {"resources": {"nodes": 99, "devices_per_node": 99}, "time_limit": "99h", "slurm": {"qos": "x"}},
    ],
    ids=json.dumps,
)
def test_what_a_pool_does_not_have_or_allow_is_refused(
    service: ApiFixture, spec: dict[str, Any], approved: Approved
) -> None:
    serve(service, GPU)
    resources = {"pool": "gpu", **spec.get("resources", {})}
    for path in ("/v1/jobs", "/v1/jobs/validate"):
        found = errors(service, {**spec, "resources": resources}, path)
        assert "\n".join(f"{field}: {found[field]}" for field in sorted(found)) == approved.of_row("errors")


def test_what_a_pool_has_and_allows_is_accepted(service: ApiFixture, approved: Approved) -> None:
    serve(service, GPU)
    slurm = {"account": "lab", "qos": "normal", "constraint": "a100&nvlink", "reservation": "week"}
    resources = {"nodes": 4, "devices_per_node": 8, "gpu": ["B200", "A100-80GB"], "cpus": 64, "memory_gb": 500}
    spec = service.submit(resources={**resources, "pool": "gpu"}, slurm=slurm, time_limit="10h")["spec"]
    assert spec["slurm"] == slurm
    assert errors(service, {"slurm": slurm}) == {"slurm": approved("slurm")}


def test_an_account_is_its_owners_or_everybodys(service: ApiFixture, approved: Approved) -> None:
    serve(service, GPU)
    asked = {"resources": {"pool": "gpu"}, "slurm": {"account": "ada-acct"}}
    service.act_as("ada")
    assert service.submit(**asked)["spec"]["slurm"]["account"] == "ada-acct"
    service.act_as("bob")
    assert errors(service, asked) == {"slurm.account": approved("slurm_account")}


def test_of_a_pool_of_which_nothing_is_known_yet_the_cluster_decides(service: ApiFixture) -> None:
    unknown = PoolReport(partition="new", kind="cuda", nodes=PoolNodes(count=0, devices=0), obstacle="no answer yet")
    serve(service, unknown)
    assert service.submit(resources={"nodes": 9, "pool": "new", "gpu": ["H100"]})["state"] == "queued"
    serve(service, PoolReport(partition="new", kind="cuda", nodes=PoolNodes(count=0, devices=0)))
    assert errors(service, {"resources": {"nodes": 9, "pool": "new"}}).keys() == {
        "resources.nodes",
        "resources.devices_per_node",
    }


@pytest.mark.parametrize("written", [{}, {"partition": 7}, {"kind": "tpu"}])
def test_a_report_that_only_a_newer_program_reads_is_no_pool(service: ApiFixture, written: dict[str, Any]) -> None:
    serve(service, GPU)
    with service.database.write() as session:
        session.execute(update(Worker).where(Worker.name == "gpu").values(pool=written))
    assert errors(service, {"resources": {"nodes": 2}}).keys() == {"resources.nodes"}


def test_each_job_of_a_batch_has_its_own_error(service: ApiFixture) -> None:
    serve(service, CPU)
    jobs: Sequence[dict[str, Any]] = [
        {**SPEC, "resources": {"nodes": nodes, "devices_per_node": 4}} for nodes in (1, 2, 3)
    ]
    answer = service.client.post("/v1/jobs/batch", json={"jobs": jobs})
    assert answer.status_code == 200, answer.text
    made = answer.json()["data"]
    assert [item.get("error") is None for item in made] == [True, True, False]
    assert service.get(f"/v1/jobs/{made[1]['id']}")["spec"]["resources"]["pool"] == "cpu"
    assert service.get(f"/v1/jobs/{made[0]['id']}")["spec"]["resources"].get("pool") is None


def test_a_retry_is_checked_as_a_new_job_is(service: ApiFixture) -> None:
    serve(service, CPU)
    job = service.submit(resources={"nodes": 2})
    service.client.post(f"/v1/jobs/{job['id']}/cancel")
    again = service.client.post(f"/v1/jobs/{job['id']}/retry")
    assert (again.status_code, again.json()["spec"]) == (201, job["spec"])
    serve(service, PoolReport(partition="cpu", kind="cpu", nodes=PoolNodes(count=1, devices=4)))
    assert service.client.post(f"/v1/jobs/{job['id']}/retry").status_code == 422


def test_the_same_key_answers_the_same_job_after_the_pool_is_gone(service: ApiFixture) -> None:
    serve(service, CPU)
    keyed = {"Idempotency-Key": "one"}
    body = {**SPEC, "resources": {"nodes": 2}}
    first = service.client.post("/v1/jobs", json=body, headers=keyed)
    age(service, "cpu", hours=48)
    again = service.client.post("/v1/jobs", json=body, headers=keyed)
    assert (again.status_code, again.json()["id"]) == (201, first.json()["id"])


def test_names_of_gpus_on_hosts_are_compared_with_those_of_hosts(service: ApiFixture) -> None:
    serve(service, GPU)
    assert service.client.post("/v1/jobs", json={**SPEC, "resources": {"gpu": ["V100"]}}).status_code == 201, "no host"
