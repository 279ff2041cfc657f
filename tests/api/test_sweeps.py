"""Sweeps over HTTP: what is accepted and refused, who may do what, and what is told."""

import socket
from typing import Any
from urllib.parse import urlsplit

from httpx2 import Response
import pytest
from sqlalchemy import update

from bench.load import post
from controller.sweeps.duty import Sweeps
from store.db.database import now_us
from store.tables import Sweep
from tests.api import test_problems
from tests.api.service import SPEC, ApiFixture, both_databases
from tests.api.serving import api_thread
from tests.approved import Approved
from torchyard.contract.states import EndReason
from torchyard.contract.team.roles import Role

STATUS = {"invalid_spec": 422, "idempotency_mismatch": 422, "not_found": 404, "forbidden": 403, "conflict": 409}
DAY_US = 24 * 3600 * 1_000_000
LR = "config.optimizer.lr"


def body(**changes: Any) -> dict[str, Any]:
    return {"name": "lrs", "parameters": {LR: [0.1, 0.01, 0.001]}, "job": SPEC, **changes}


def submitted(service: ApiFixture, **changes: Any) -> dict[str, Any]:
    answer = service.client.post("/v1/sweeps", json=body(**changes))
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == f"/v1/sweeps/{answer.json()['id']}"
    return answer.json()


def assert_problem(answer: Response, code: str) -> None:
    test_problems.assert_problem(answer, STATUS[code], code)


def control(service: ApiFixture) -> None:
    """Does what a controller does, until nothing is due."""
    duty = Sweeps(service.app.state.services.store)
    while duty.run():
        pass


def trials(service: ApiFixture, sweep: str, query: str = "") -> list[dict[str, Any]]:
    return service.get(f"/v1/sweeps/{sweep}/trials{query}")["data"]


def finished(service: ApiFixture, **losses: float) -> dict[str, Any]:
    """A sweep of which trial `tN` has the loss that is given."""
    sweep = submitted(service)
    control(service)
    jobs = {trial["number"]: trial["job_id"] for trial in trials(service, sweep["id"])}
    for name, loss in losses.items():
        claim = service.start(jobs[int(name.removeprefix("t"))])
        new = service.new_checkpoint(step=1, epoch=1, files={"state.pt": name.encode()}, val_loss=loss)
        service.record(claim, checkpoints=[new])
        service.end(claim, reason=EndReason.COMPLETED)
    control(service)
    return service.get(f"/v1/sweeps/{sweep['id']}")


@both_databases
def test_a_sweep_becomes_jobs_that_say_which_they_are(service: ApiFixture) -> None:
    sweep = submitted(service)
    assert sweep["trials"] == {
        "total": 3, "waiting": 3, "queued": 0, "running": 0, "paused": 0, "succeeded": 0, "failed": 0, "cancelled": 0,
    }  # fmt: skip
    assert (sweep["monitor"], sweep["mode"], sweep["state"], sweep["best"]) == ("val/loss", "min", "running", None)
    control(service)
    found = service.get(f"/v1/jobs?sweep={sweep['id']}&sort=-created")["data"]
    assert [(job["name"], job["sweep"]) for job in found] == [
        (f"lrs-{number}", {"id": sweep["id"], "name": "lrs", "trial": number, "point": {LR: value}})
        for number, value in enumerate([0.1, 0.01, 0.001])
    ]
    job = service.get(f"/v1/jobs/{found[1]['id']}")
    assert (job["sweep"], job["spec"]["config"]["optimizer"]["lr"]) == (found[1]["sweep"], 0.01)
    assert service.get(f"/v1/sweeps/{sweep['id']}")["trials"]["queued"] == 3


def test_a_ranking_has_the_best_first_and_nan_last(service: ApiFixture) -> None:
    sweep = finished(service, t0=0.5, t1=0.25, t2=float("nan"))
    assert (sweep["state"], sweep["best"]["trial"], sweep["best"]["value"]) == ("finished", 1, 0.25)
    ranked = trials(service, sweep["id"])
    assert [(trial["number"], trial["rank"], trial["value"]) for trial in ranked] == [
        (1, 1, 0.25), (0, 2, 0.5), (2, None, None),
    ]  # fmt: skip
    assert [trial["number"] for trial in trials(service, sweep["id"], "?sort=number")] == [0, 1, 2]
    first = service.get(f"/v1/sweeps/{sweep['id']}/trials?limit=2")
    rest = service.get(f"/v1/sweeps/{sweep['id']}/trials?limit=2&after={first['next']}")
    assert [*first["data"], *rest["data"]] == ranked
    assert (first["has_more"], rest["has_more"]) == (True, False)


def test_the_best_of_a_sweep_is_a_checkpoint(service: ApiFixture) -> None:
    sweep = finished(service, t0=0.5, t1=0.25, t2=0.75)
    best, job_id = sweep["best"]["checkpoint_id"], sweep["best"]["job_id"]
    assert service.get(f"/v1/jobs/{sweep['id']}/checkpoints/best")["id"] == best
    answer = service.client.get(f"/v1/jobs/{sweep['id']}/checkpoints/best/download")
    assert answer.content == b"t1"
    started = service.submit(init_from=f"{sweep['id']}/best")
    assert started["init_from"]["ref"] == f"{job_id}/{best}"
    kept = service.client.post("/v1/models", json={"name": "digits", "from": f"{sweep['id']}/best"})
    assert (kept.status_code, kept.json()["checkpoint_id"]) == (201, best)


def test_the_best_of_a_foreign_sweep_is_not_there(service: ApiFixture, approved: Approved) -> None:
    service.act_as("ada")
    sweep = finished(service, t0=0.5)
    service.act_as("bob")
    for ref in (sweep["id"], "swp_" + "0" * 32):
        answer = service.client.post("/v1/jobs", json={**SPEC, "init_from": f"{ref}/best"})
        assert_problem(answer, "invalid_spec")
        assert answer.json()["errors"] == [{"field": "init_from", "message": approved("message", ref=ref)}]
        assert_problem(service.client.get(f"/v1/jobs/{ref}/checkpoints/best/download"), "not_found")
        kept = service.client.post("/v1/models", json={"name": "digits", "from": f"{ref}/best"})
        assert_problem(kept, "not_found")


def test_a_sweep_without_a_result_has_no_best(service: ApiFixture) -> None:
    sweep = submitted(service)
    answer = service.client.post("/v1/jobs", json={**SPEC, "init_from": f"{sweep['id']}/best"})
    assert_problem(answer, "invalid_spec")
    assert "has no checkpoint with a value yet" in answer.text


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"parameters": {LR: [0.1, -1]}}, f"parameters.{LR}"),
        ({"job": {"trainer": "nothing"}}, "job.trainer"),
    ],
)
def test_what_cannot_be_a_sweep_is_refused_by_name(
    service: ApiFixture, changes: dict[str, Any], field: str, approved: Approved
) -> None:
    """What else cannot be one: tests/torchyard/contract/sweeps/test_points.py."""
    for path in ("/v1/sweeps", "/v1/sweeps/validate"):
        answer = service.client.post(path, json=body(**changes))
        assert_problem(answer, "invalid_spec")
        found = answer.json()["errors"][0]
        assert found["field"] == field, found
        assert found["message"] == approved.of_row("message")
    assert service.get("/v1/sweeps")["data"] == []


def test_a_validation_counts_and_stores_nothing(service: ApiFixture) -> None:
    answer = service.client.post("/v1/sweeps/validate", json=body(method="array", parameters={}, trials=100))
    assert (answer.json()["points"], answer.json()["spec"]["monitor"]) == (100, "val/loss")
    assert service.get("/v1/sweeps")["data"] == []


def test_a_repeated_request_with_a_key_makes_one_sweep(service: ApiFixture) -> None:
    keyed = {"Idempotency-Key": "once"}
    first = service.client.post("/v1/sweeps", json=body(), headers=keyed)
    again = service.client.post("/v1/sweeps", json=body(), headers=keyed)
    assert (again.status_code, again.json()["id"]) == (201, first.json()["id"])
    assert again.headers["idempotent-replayed"] == "true"
    other = service.client.post("/v1/sweeps", json=body(name="other"), headers=keyed)
    assert_problem(other, "idempotency_mismatch")


def test_a_key_of_a_sweep_is_kept_for_24_hours(service: ApiFixture) -> None:
    def post(**changes: Any) -> str:
        return service.client.post("/v1/sweeps", json=body(**changes), headers={"Idempotency-Key": "once"}).json()["id"]

    first = post()
    with service.database.write() as session:
        session.execute(update(Sweep).values(created_at=now_us() - DAY_US + 10**9))
    assert post() == first
    with service.database.write() as session:
        session.execute(update(Sweep).values(created_at=now_us() - DAY_US))
    second = post(name="other")
    assert second != first and post(name="other") == second


def test_a_sweep_is_paused_resumed_cancelled_and_deleted(service: ApiFixture) -> None:
    sweep = submitted(service)["id"]
    control(service)
    for action, state, ends in (
        ("pause", "paused", "paused"),
        ("resume", "running", "running"),
        ("cancel", "cancelling", "cancelled"),
    ):
        answer = service.client.post(f"/v1/sweeps/{sweep}/{action}")
        assert (answer.status_code, answer.json()["state"]) == (202, state)
        control(service)
        assert service.get(f"/v1/sweeps/{sweep}")["state"] == ends
    assert_problem(service.client.post(f"/v1/sweeps/{sweep}/resume"), "conflict")
    assert service.client.delete(f"/v1/sweeps/{sweep}?jobs=true").status_code == 204
    assert_problem(service.client.get(f"/v1/sweeps/{sweep}"), "not_found")
    assert service.get("/v1/jobs")["data"] == []
    actions = [entry["action"] for entry in service.get("/v1/audit")["data"]]
    assert {"sweep.submit", "sweep.pause", "sweep.resume", "sweep.cancel", "sweep.delete"} <= {*actions}


def test_a_trial_is_promoted_and_a_sweep_extended(service: ApiFixture) -> None:
    sweep = finished(service, t0=0.5, t1=0.25, t2=0.75)["id"]
    answer = service.client.post(f"/v1/sweeps/{sweep}/trials/0/promote")
    assert (answer.status_code, answer.json()["state"]) == (202, "queued")
    assert_problem(service.client.post(f"/v1/sweeps/{sweep}/trials/0/promote"), "conflict")
    for number in ("3", "x", "-1", "9" * 30):
        assert_problem(service.client.post(f"/v1/sweeps/{sweep}/trials/{number}/promote"), "not_found")
    assert_problem(service.client.post(f"/v1/sweeps/{sweep}/extend", json={"trials": 2}), "invalid_spec")
    answer = service.client.post(f"/v1/sweeps/{sweep}/extend", json={"max_parallel": 2})
    assert answer.json()["max_parallel"] == 2


def test_what_is_added_to_a_sweep_is_checked_as_the_sweep_was(service: ApiFixture) -> None:
    sweep = submitted(service, method="list", parameters={}, points=[{"stop_grace": "1s"}])["id"]
    answer = service.client.post(f"/v1/sweeps/{sweep}/extend", json={"points": [{"stop_grace": "3650d"}]})
    assert_problem(answer, "invalid_spec")
    assert service.get(f"/v1/sweeps/{sweep}")["trials"]["total"] == 1


def test_a_sweep_has_no_schedule(service: ApiFixture) -> None:
    answer = service.client.post("/v1/sweeps", json=body(job={**SPEC, "schedule": "0 3 * * *"}))
    assert_problem(answer, "invalid_spec")
    assert answer.json()["errors"][0]["field"] == "schedule"


def test_trials_that_are_added_count_as_requests(service: ApiFixture) -> None:
    service.act_as("ada")
    sweep = submitted(service, method="array", parameters={}, trials=1)["id"]
    ada = service.client.headers["Authorization"].removeprefix("Bearer ")
    settings = service.settings
    with api_thread(settings.data_dir, settings.database, settings.redis, max_requests_per_second=2) as url:
        parts = urlsplit(url)

        def status(trials: int) -> bytes:
            with socket.create_connection((parts.hostname or "", parts.port or 0)) as connection:
                connection.sendall(post(f"/v1/sweeps/{sweep}/extend", {"trials": trials}, token=ada))
                return connection.recv(12).split()[1]

        assert [status(15), status(15)] == [b"200", b"429"]
    assert service.get(f"/v1/sweeps/{sweep}")["trials"]["total"] == 16


def test_lists_have_the_sweeps_that_one_may_read(service: ApiFixture) -> None:
    service.act_as("ada")
    own, shared = submitted(service)["id"], submitted(service, name="shared", visibility="team")["id"]
    assert [sweep["id"] for sweep in service.get("/v1/sweeps?limit=1")["data"]] == [shared]
    assert [sweep["id"] for sweep in service.get(f"/v1/sweeps?after={shared}")["data"]] == [own]
    assert [sweep["id"] for sweep in service.get("/v1/sweeps?name=shared&owner=ada&state=running")["data"]] == [shared]
    service.act_as("bob")
    assert [sweep["id"] for sweep in service.get("/v1/sweeps")["data"]] == [shared]
    assert_problem(service.client.get(f"/v1/sweeps/{own}"), "not_found")
    assert_problem(service.client.post(f"/v1/sweeps/{shared}/cancel"), "forbidden")
    service.act_as("vic", Role.VIEWER)
    assert_problem(service.client.post("/v1/sweeps", json=body()), "forbidden")


def test_a_trial_has_the_visibility_of_its_sweep(service: ApiFixture) -> None:
    sweep = submitted(service, visibility="team")["id"]
    control(service)
    job = trials(service, sweep)[0]["job_id"]
    assert service.get(f"/v1/jobs/{job}")["visibility"] == "team"
    assert_problem(service.client.patch(f"/v1/jobs/{job}", json={"visibility": "private"}), "conflict")
    assert service.client.patch(f"/v1/jobs/{job}", json={"visibility": "team", "priority": 3}).status_code == 200
