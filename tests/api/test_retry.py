"""`POST /v1/jobs/validate`, and `POST /v1/jobs/{id}/retry`."""

from dataclasses import replace
from typing import Any

from sqlalchemy import select

from store.output.checkpoints_facts import CAPTURED
from store.tables import Checkpoint, Job
from tests import line
from tests.api.service import SPEC, ApiFixture
from tests.approved import Approved
from torchyard.contract.jobs.submissions import SpecView
from torchyard.contract.jobs.views import JobView
from torchyard.contract.states import EndReason


def finished(service: ApiFixture, *steps: int, **spec: Any) -> str:
    """A failed job with a checkpoint at each step."""
    job_id = service.submit(max_restarts=0, **spec)["id"]
    claim = service.start(job_id)
    for step in steps:
        files = {"state.pt": f"state {step}".encode(), "model.safetensors": b"weights"}
        service.record(
            claim, checkpoints=[service.new_checkpoint(step=step, epoch=step, files=files, val_loss=1 / step)]
        )
    service.end(claim, reason=EndReason.USER_ERROR, message="a bug")
    return job_id


def test_validation_returns_the_whole_spec_and_stores_nothing(service: ApiFixture) -> None:
    answer = service.client.post("/v1/jobs/validate", json={**SPEC, "time_limit": "90m"})
    assert answer.status_code == 200
    view = SpecView.model_validate(answer.json())
    assert view.spec.trainer == "image-classification"
    assert view.spec.config.training.epochs == 3
    assert service.get("/v1/jobs")["data"] == []
    assert answer.json()["spec"] == service.submit(time_limit="90m")["spec"]


def test_validation_refuses_what_a_submission_refuses(service: ApiFixture) -> None:
    for body in ('{"trainer": "script", "x": 1}', "[]", "{", "NaN", ""):
        refused = [service.client.post(path, content=body) for path in ("/v1/jobs/validate", "/v1/jobs")]
        assert [answer.status_code for answer in refused] == [422, 422]
        problems = [{**answer.json(), "request_id": ""} for answer in refused]
        assert problems[0] == problems[1]


def test_a_retried_job_has_the_same_spec_and_the_newest_checkpoint(service: ApiFixture, approved: Approved) -> None:
    old = finished(service, 5, 10, labels={"team": "bridges"}, priority=4)
    answer = service.client.post(f"/v1/jobs/{old}/retry")
    assert answer.status_code == 201
    new = JobView.model_validate(answer.json())
    assert answer.headers["Location"] == f"/v1/jobs/{new.id}"
    assert (new.state, new.retry_of, new.attempt, new.priority) == ("queued", old, 0, 4)
    assert new.id != old
    assert answer.json()["spec"] == service.get(f"/v1/jobs/{old}")["spec"]
    assert new.id in line.waiting(service.queue)
    theirs, ours = (service.get(f"/v1/jobs/{job_id}/checkpoints")["data"] for job_id in (old, new.id))
    assert [item["step"] for item in ours] == [10]
    changed = {"id", "attempt", "created_at", "aliases"}
    assert {key: ours[0][key] for key in ours[0].keys() - changed} == {
        key: theirs[0][key] for key in theirs[0].keys() - changed
    }
    assert ours[0]["attempt"] == 0
    assert ours[0]["id"] != theirs[0]["id"]
    assert set(ours[0]["aliases"]) == {"best", "latest", "epoch-10", "step-10"}
    assert service.client.get(f"/v1/jobs/{new.id}/checkpoints/best/download").content == b"state 10"
    events = service.get(f"/v1/jobs/{new.id}/events")["data"]
    assert [event["type"] for event in events] == ["state", "message"]
    assert events[1]["data"] == {"level": "info", "text": approved("text", old=old)}


def test_an_attempt_of_a_retried_job_starts_at_the_checkpoints_step(service: ApiFixture) -> None:
    new = service.client.post(f"/v1/jobs/{finished(service, 5)}/retry").json()["id"]
    claim = service.start(new)
    with service.database.read() as session:
        assert session.execute(select(Job.attempt).where(Job.id == new)).scalar_one() == 1
        assert session.execute(select(Checkpoint.attempt).where(Checkpoint.job_id == new)).scalars().all() == [0]
    service.record(claim, checkpoints=[service.new_checkpoint(step=6, epoch=6, files={"state.pt": b"x"}, val_loss=0.1)])
    shown = service.get(f"/v1/jobs/{new}/checkpoints")["data"]
    assert [(item["step"], item["attempt"]) for item in shown] == [(6, 1), (5, 0)]
    assert service.get(f"/v1/jobs/{new}")["best"]["step"] == 6


def test_a_job_without_a_checkpoint_is_retried_from_the_start(service: ApiFixture, approved: Approved) -> None:
    old = service.submit()["id"]
    service.client.post(f"/v1/jobs/{old}/cancel")
    new = service.client.post(f"/v1/jobs/{old}/retry").json()
    assert new["retry_of"] == old
    assert service.get(f"/v1/jobs/{new['id']}/checkpoints")["data"] == []
    message = service.get(f"/v1/jobs/{new['id']}/events")["data"][-1]
    assert message["data"]["text"] == approved("text", old=old)


def test_a_retry_keeps_later_changes_of_the_job(service: ApiFixture) -> None:
    old = finished(service, 1)
    service.client.patch(f"/v1/jobs/{old}", json={"name": "second", "labels": {"try": "2"}})
    new = service.client.post(f"/v1/jobs/{old}/retry").json()
    assert (new["name"], new["labels"]) == ("second", {"try": "2"})


def test_a_job_that_has_not_ended_is_not_retried(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    for state in ("queued", "running"):
        answer = service.client.post(f"/v1/jobs/{job_id}/retry")
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
        assert state in answer.json()["detail"]
        if state == "queued":
            service.start(job_id)
    assert len(service.get("/v1/jobs")["data"]) == 1


def test_the_user_who_retries_a_job_owns_the_new_one(service: ApiFixture) -> None:
    service.act_as("bob")
    bobs = finished(service, 1)
    service.act_as("admin")
    assert service.client.post(f"/v1/jobs/{bobs}/retry").json()["owner"] == "admin"
    admins = finished(service, 1)
    service.act_as("bob")
    assert service.client.post(f"/v1/jobs/{bobs}/retry").json()["owner"] == "bob"
    assert service.client.post(f"/v1/jobs/{admins}/retry").status_code == 404
    assert service.client.post("/v1/jobs/nonsense/retry").status_code == 404


def test_a_retried_script_begins_as_its_worker_tells(service: ApiFixture) -> None:
    script = {"trainer": "script", "name": "mine", "config": {"code": "file:///code", "entrypoint": "train.py"}}
    old = service.submit(max_restarts=0, **script)["id"]
    claim = service.start(old)
    new = service.new_checkpoint(step=0, files={"last.pt": b"state"})
    service.record(claim, checkpoints=[replace(new, source=CAPTURED)])
    service.end(claim, reason=EndReason.USER_ERROR, message="a bug")
    without = service.submit(**script)["id"]
    service.client.post(f"/v1/jobs/{without}/cancel")
    texts = {old: f"retries job {old}", without: f"retries job {without}, which saved no checkpoint"}
    for job_id, text in texts.items():
        retried = service.client.post(f"/v1/jobs/{job_id}/retry").json()["id"]
        assert service.get(f"/v1/jobs/{retried}/events")["data"][-1]["data"]["text"] == text


def test_a_retried_job_keeps_its_checkpoint_when_the_old_one_is_deleted(service: ApiFixture) -> None:
    old = finished(service, 5)
    new = service.client.post(f"/v1/jobs/{old}/retry").json()["id"]
    assert service.client.delete(f"/v1/jobs/{old}").status_code == 204
    assert service.client.get(f"/v1/jobs/{new}/checkpoints/latest/download").content == b"state 5"
    assert service.get(f"/v1/jobs/{new}")["retry_of"] == old


def test_a_retry_may_name_the_checkpoint_that_it_goes_on_from(service: ApiFixture, approved: Approved) -> None:
    old = finished(service, 5, 10, checkpoint={"keep_last": 1, "keep_best": 1})
    gone = service.client.post(f"/v1/jobs/{old}/retry", json={"from": "epoch-5"})
    assert gone.status_code == 404
    assert "was removed for newer and better ones" in gone.json()["detail"]
    old = finished(service, 5, 10)
    answer = service.client.post(f"/v1/jobs/{old}/retry", json={"from": "epoch-5"}, headers={"Idempotency-Key": "k"})
    assert answer.status_code == 201
    new = answer.json()["id"]
    assert [item["step"] for item in service.get(f"/v1/jobs/{new}/checkpoints")["data"]] == [5]
    assert service.get(f"/v1/jobs/{new}/events")["data"][1]["data"]["text"] == approved("text", old=old)
    other = service.client.post(f"/v1/jobs/{old}/retry", json={"from": "epoch-10"}, headers={"Idempotency-Key": "k"})
    assert other.json()["code"] == "idempotency_mismatch"
    wrong = service.client.post(f"/v1/jobs/{old}/retry", json={"form": "epoch-5"})
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "form")
    assert "did you mean `from`?" in wrong.json()["errors"][0]["message"]


def test_a_fresh_retry_goes_on_from_no_checkpoint(service: ApiFixture) -> None:
    old = finished(service, 5)
    new = service.client.post(f"/v1/jobs/{old}/retry", json={"fresh": True}).json()
    assert new["retry_of"] == old
    assert service.get(f"/v1/jobs/{new['id']}/checkpoints")["data"] == []
    assert "with its code alone" in service.get(f"/v1/jobs/{new['id']}/events")["data"][1]["data"]["text"]
    wrong = service.client.post(f"/v1/jobs/{old}/retry", json={"fresh": True, "from": "best"})
    assert wrong.status_code == 422


def test_a_script_is_worked_in_by_a_job_that_waits_with_its_code_and_devices(service: ApiFixture) -> None:
    own = {"entrypoint": "train.py", "args": ["--x"], "checkpoints": ["*.pt"]}
    script = {"trainer": "script", "env": {"A": "1"}, "launcher": "warm", "stall_timeout": "1m", "priority": 4}
    old = service.client.post("/v1/jobs", json={**script, "config": {"code": "file:///code", **own}}).json()["id"]
    service.client.post(f"/v1/jobs/{old}/cancel")
    wanted = {"name": "look", "time_limit": "8h", "idle_timeout": "1h"}
    new = service.client.post(f"/v1/jobs/{old}/retry", json={"dev": wanted, "devices": 2}).json()
    spec, before = new["spec"], service.get(f"/v1/jobs/{old}")["spec"]
    assert new["retry_of"] == old
    assert {key: spec[key] for key in wanted} == wanted
    waits = {"command": "sleep", "args": ["infinity"]}
    assert spec["config"] == {"code": "file:///code", "checkpoints": ["*.pt"], **waits}
    assert spec["resources"] == {**before["resources"], "devices_per_node": 2}
    assert (spec["env"], spec["launcher"], spec["priority"]) == ({"A": "1"}, "auto", 0)


def test_a_job_that_waits_has_valid_limits_and_is_no_recipe(service: ApiFixture) -> None:
    wanted = {"time_limit": "8h", "idle_timeout": "1h"}
    recipe = service.client.post(f"/v1/jobs/{finished(service)}/retry", json={"dev": wanted})
    assert (recipe.status_code, "is not a script" in recipe.json()["detail"]) == (409, True)
    old = service.client.post("/v1/jobs", json={"trainer": "script", "config": {"code": "file:///code"}}).json()["id"]
    service.client.post(f"/v1/jobs/{old}/cancel")
    wrong = service.client.post(f"/v1/jobs/{old}/retry", json={"dev": {**wanted, "idle_timeout": "1s"}})
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "idle_timeout")


def test_the_retries_of_a_job_are_found(service: ApiFixture) -> None:
    old = finished(service, 5)
    new = service.client.post(f"/v1/jobs/{old}/retry", json={}).json()["id"]
    assert [job["id"] for job in service.get("/v1/jobs", retry_of=old)["data"]] == [new]
    assert service.get("/v1/jobs", retry_of=new)["data"] == []


def test_a_job_says_what_it_starts_from_and_who_starts_from_it(service: ApiFixture) -> None:
    old = finished(service, 5)
    (saved,) = service.get(f"/v1/jobs/{old}/checkpoints")["data"]
    exact = f"{old}/{saved['id']}"
    answer = service.submit(init_from=f"{old}/best")
    assert answer["spec"]["init_from"] == exact
    assert answer["init_from"] == {
        "ref": exact,
        "job_id": old,
        "checkpoint_id": saved["id"],
        "model": None,
        "step": 5,
    }
    assert service.get(f"/v1/jobs/{answer['id']}")["init_from"] == answer["init_from"]
    assert service.get(f"/v1/jobs/{old}")["init_from"] is None
    assert [job["id"] for job in service.get("/v1/jobs", init_from=old)["data"]] == [answer["id"]]
    assert service.get("/v1/jobs", init_from=answer["id"])["data"] == []
    wrong = service.client.post("/v1/jobs", json={**SPEC, "init_from": f"{old}/epoch-9"})
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "init_from")
    resubmitted = service.client.post("/v1/jobs", json=answer["spec"])
    assert resubmitted.json()["init_from"] == answer["init_from"], "a resolved spec is itself a valid spec"


def test_a_retry_may_have_another_number_of_devices(service: ApiFixture, approved: Approved) -> None:
    old = finished(service, 5, resources={"min_memory_gb": 3})
    answer = service.client.post(f"/v1/jobs/{old}/retry", json={"devices": 2, "from": "epoch-5"})
    assert answer.status_code == 201
    new = answer.json()
    resources = new["spec"]["resources"]
    assert (resources["devices_per_node"], resources["min_memory_gb"]) == (2, 3)
    assert {**new["spec"], "resources": {}} == {**service.get(f"/v1/jobs/{old}")["spec"], "resources": {}}
    assert [item["step"] for item in service.get(f"/v1/jobs/{new['id']}/checkpoints")["data"]] == [5]
    message = service.get(f"/v1/jobs/{new['id']}/events")["data"][-1]
    assert message["data"]["text"] == approved("text", old=old)
    for wrong in (0, 1025, "2"):
        refused = service.client.post(f"/v1/jobs/{old}/retry", json={"devices": wrong})
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "devices")


def test_a_paused_job_goes_on_with_another_number_of_devices(service: ApiFixture, approved: Approved) -> None:
    job_id = service.submit(resources={"devices_per_node": 2})["id"]
    waits = service.client.post(f"/v1/jobs/{job_id}/resume", json={"devices": 1})
    assert (waits.status_code, waits.json()["detail"]) == (409, approved("detail", job_id=job_id))
    before = service.client.post(f"/v1/jobs/{job_id}/pause").json()
    for _ in range(2):
        resumed = service.client.post(f"/v1/jobs/{job_id}/resume", json={"devices": 1})
        assert (resumed.status_code, resumed.json()["state"]) == (202, "queued")
        assert resumed.json()["spec"]["resources"] == {**before["spec"]["resources"], "devices_per_node": 1}
    shown = service.get(f"/v1/jobs/{job_id}")
    assert shown["spec"]["resources"]["devices_per_node"] == 1
    assert service.get("/v1/queue")["data"][0]["resources"]["devices_per_node"] == 1
    events = service.get(f"/v1/jobs/{job_id}/events")["data"]
    texts = [event["data"]["text"] for event in events if event["type"] == "message"]
    assert texts == [approved("text")]
    service.start(job_id)
    service.client.post(f"/v1/jobs/{job_id}/pause")
    runs = service.client.post(f"/v1/jobs/{job_id}/resume", json={"devices": 2})
    assert runs.status_code == 409


def test_a_paused_job_gets_no_more_devices_than_its_owner_may_hold(service: ApiFixture) -> None:
    service.act_as("bob")
    job_id = service.submit()["id"]
    service.client.post(f"/v1/jobs/{job_id}/pause")
    service.act_as("admin")
    assert service.client.put("/v1/quotas/users/bob", json={"devices": 2}).status_code == 204
    service.act_as("bob")
    refused = service.client.post(f"/v1/jobs/{job_id}/resume", json={"devices": 3})
    assert (refused.status_code, refused.json()["code"]) == (403, "quota_exceeded")
    shown = service.get(f"/v1/jobs/{job_id}")
    assert (shown["state"], shown["spec"]["resources"]["devices_per_node"]) == ("paused", 1)
    assert service.client.post(f"/v1/jobs/{job_id}/resume", json={"devices": 2}).status_code == 202
