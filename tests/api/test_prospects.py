"""`POST /v1/jobs/validate?place=true`: what a job would wait for, by the plan that the workers make."""

from typing import Any

from store.cluster import workers
from store.jobs import jobs
from store.queue import placement
from tests import sessions
from tests.api.service import SPEC, ApiFixture, both_databases
from tests.approved import Approved
from tests.databases import quick_on_sqlite
from tests.rows import each_row
from torchyard.contract.cluster.devices import DeviceReport

SLOTS = [{"index": index, "uuid": f"cpu-{index}", "name": "CPU slot", "kind": "cpu"} for index in range(2)]

REPORTS = [DeviceReport.from_dict(slot) for slot in SLOTS]


def prospect(service: ApiFixture, **spec: Any) -> dict[str, Any]:
    answer = service.client.post("/v1/jobs/validate?place=true", json={**SPEC, **spec})
    assert answer.status_code == 200, answer.text
    return answer.json()["waits_for"]


def add_worker(service: ApiFixture) -> None:
    with service.database.write() as session:
        workers.register(session, service.worker_id, name="box-a", devices=SLOTS)


@both_databases
def test_a_job_that_fits_would_start_at_once_and_nothing_is_stored(service: ApiFixture) -> None:
    add_worker(service)
    assert prospect(service, resources={"devices_per_node": 2}) == {
        "fits": True,
        "code": None,
        "message": None,
        "position": 1,
    }
    assert service.get("/v1/jobs")["data"] == []
    assert service.get("/v1/queue")["data"] == []
    plain = service.client.post("/v1/jobs/validate", json=SPEC).json()
    assert list(plain) == ["spec"], "only who asks is told"


@both_databases
def test_a_job_that_does_not_fit_is_told_what_its_status_reason_would_say(
    service: ApiFixture, approved: Approved
) -> None:
    assert prospect(service)["code"] == "no_such_device", "there is no worker"
    add_worker(service)
    assert prospect(service, resources={"devices_per_node": 3})["message"] == approved("message")
    service.start(service.submit()["id"])
    found = prospect(service, resources={"devices_per_node": 2})
    assert (found["fits"], found["code"], found["position"]) == (False, "reserved", 1)
    assert found["message"] == approved("needs devices box")
    assert prospect(service)["fits"], "one slot is free"


@quick_on_sqlite
def test_jobs_that_could_start_before_it_take_their_devices_in_the_answer(service: ApiFixture) -> None:
    """No worker has looked at the queue yet: the answer counts with what they will do."""
    add_worker(service)
    service.submit()
    assert prospect(service) == {"fits": True, "code": None, "message": None, "position": 2}
    service.submit()
    found = prospect(service)
    assert (found["fits"], found["code"], found["position"]) == (False, "reserved", 3)
    service.submit(resources={"devices_per_node": 2}, priority=5)
    assert not prospect(service)["fits"], "one ahead takes both"
    assert prospect(service, priority=9)["position"] == 1


@both_databases
def test_another_users_private_job_is_counted_and_not_named(service: ApiFixture) -> None:
    add_worker(service)
    for _ in range(3):
        service.submit(name="merger", resources={"devices_per_node": 2}, labels={"for": "acme"})
    service.act_as("bob")
    answer = service.client.post("/v1/jobs/validate?place=true", json=SPEC)
    assert not answer.json()["waits_for"]["fits"]
    assert not any(word in answer.text for word in ("merger", "acme", "job_"))


@both_databases
def test_a_quota_that_refuses_the_job_says_so(service: ApiFixture, approved: Approved) -> None:
    add_worker(service)
    service.act_as("bob")
    service.act_as("admin")
    service.client.put("/v1/quotas/users/bob", json={"devices": 1, "queued": 1})
    service.act_as("bob")
    found = prospect(service, resources={"devices_per_node": 2})
    assert (found["fits"], found["code"], found["position"]) == (False, "quota", None)
    assert found["message"] == approved("message")
    service.submit()
    assert prospect(service)["message"] == approved("queued or paused")


def test_who_waits_for_other_jobs_is_told_which(service: ApiFixture) -> None:
    add_worker(service)
    service.submit(name="first")
    found = prospect(service, after=[{"job": "first"}])
    assert (found["fits"], found["position"]) == (False, None)
    assert "first" in found["message"]


@each_row(
    ("spec", "field"),
    [
        ({"env": {"HF_TOKEN": {"secret": "NOT_THERE"}}}, "env.HF_TOKEN"),
        ({"resources": {"gpu": ["H100"]}}, "resources.gpu"),
        ({"notify": {"targets": ["nobody"]}}, "notify.targets.0"),
        ({"config": {"training": {"epochs": 0}}}, "config.training.epochs"),
    ],
)
def test_what_a_submission_would_refuse_is_an_error_at_its_field(
    service: ApiFixture, spec: dict[str, Any], field: str
) -> None:
    add_worker(service)
    bodies = [service.client.post(path, json={**SPEC, **spec}) for path in ("/v1/jobs/validate?place=true", "/v1/jobs")]
    assert [answer.status_code for answer in bodies] == [422, 422]
    assert [answer.json()["errors"][0]["field"] for answer in bodies] == [field, field]


def test_the_reason_is_the_one_that_a_worker_then_finds(service: ApiFixture) -> None:
    """Each job is asked for, submitted, and planned for as a worker does."""
    add_worker(service)
    store = service.app.state.services.store
    for spec in (
        {"resources": {"devices_per_node": 2}},
        {"resources": {"devices_per_node": 2}},
        {"resources": {"devices_per_node": 1}, "priority": -1},
        {"resources": {"devices_per_node": 5}},
        {"resources": {"device": "cuda"}},
        {"preemptible": True, "time_limit": "1m"},
        {"priority": 50},
        {},
    ):
        told = prospect(service, **spec)
        job_id = service.submit(**spec)["id"]
        found = sessions.read(store, placement.read_plan, {service.worker_id: REPORTS})
        assert found is not None
        planned = found[1]
        starts = [start.job.id for start in planned.starts]
        assert told["fits"] == (job_id in starts), spec
        if not told["fits"]:
            own = planned.reasons.by_job.get(job_id)
            reason = own or planned.reasons.by_shape[_shape(service, job_id)]
            assert (told["code"], told["message"]) == (reason.code, reason.message), spec


def _shape(service: ApiFixture, job_id: str) -> str:
    with service.database.read() as session:
        return jobs.require(session, job_id).shape
