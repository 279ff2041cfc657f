"""The operations on sweeps, by both clients."""

import json
from typing import Any

import pytest

from tests.approved import Approved
from tests.torchyard.client.answers import NOW, job, page
from tests.torchyard.client.fake_server import Answer, FakeServer, problem
from torchyard.client import Client
from torchyard.contract.errors import Conflict, InvalidSpec, NotFound, TooLarge
from torchyard.contract.sweeps.spec import MOST_SWEEP_BYTES, SweepState

PATH, ID = "/v1/sweeps", "swp_0192a0"
OF_ONE = f"{PATH}/{ID}"


def sweep(**changes: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "id": ID,
        "name": "lr",
        "state": "running",
        "status_reason": {"code": "running", "message": "trials are made", "since": NOW},
        "owner": "admin",
        "visibility": "private",
        "method": "grid",
        "monitor": "val/loss",
        "mode": "min",
        "max_parallel": None,
        "trials": {"total": 3, "running": 2, "succeeded": 1},
        "best": None,
        "spec": {"parameters": {"config.optimizer.lr": [1, 2, 3]}, "job": {"trainer": "image-classification"}},
        "created_at": NOW,
        "version": 1,
    }
    return {**plain, **changes}


def trial(number: int, **changes: Any) -> dict[str, Any]:
    plain = {"number": number, "job_id": f"job_{number}", "state": "running", "value": None, "rank": None}
    return {**plain, "point": {"config.optimizer.lr": number + 1}, **changes}


def sent(server: FakeServer) -> Any:
    return json.loads(server.requests[-1].body)


def test_a_sweep_is_created_once_though_the_connection_breaks(server: FakeServer, client: Client) -> None:
    server.on("/v1/me", {"name": "ada", "role": "member", "scopes": []})
    client.me()  # a server that has answered is asked again
    server.on(PATH, Answer(status=0), Answer(sweep(), 201))
    spec = {"parameters": {"config.optimizer.lr": [1]}, "job": {"trainer": "image-classification"}}
    assert client.sweeps.create(spec).state == SweepState.RUNNING
    first, second = [request.headers["Idempotency-Key"] for request in server.requests if request.path == PATH]
    assert first == second and sent(server) == spec
    client.sweeps.create(spec, idempotency_key="nightly")
    assert server.requests[-1].headers["Idempotency-Key"] == "nightly"


def test_the_job_of_a_sweep_may_start_from_a_job_by_its_name(server: FakeServer, client: Client) -> None:
    server.on("/v1/jobs", page([job(id=f"job_{'1' * 32}")]))
    server.on(f"/v1/jobs/job_{'1' * 32}", job(id=f"job_{'1' * 32}"))
    server.on(f"{PATH}/validate", {"spec": sweep()["spec"], "points": 3})
    resolved = client.sweeps.validate({"job": {"trainer": "script", "init_from": "digits/best"}})
    assert (resolved.points, resolved.spec.method) == (3, "grid")
    assert sent(server) == {"job": {"trainer": "script", "init_from": f"job_{'1' * 32}/best"}}


def test_what_is_no_sweep_is_left_to_the_server(server: FakeServer, client: Client, approved: Approved) -> None:
    server.on(PATH, problem("invalid_spec", 422, errors=[{"field": "job", "message": "is missing"}]))
    with pytest.raises(InvalidSpec, match="job: is missing"):
        client.sweeps.create({})
    with pytest.raises(InvalidSpec) as raised:
        client.sweeps.create({"job": {}, "seed": float("nan")})
    assert str(raised.value) == approved("message")
    with pytest.raises(TooLarge, match=f"submit at most {MOST_SWEEP_BYTES}"):
        client.sweeps.create({"job": {"env": {"A": "x" * MOST_SWEEP_BYTES}}})


def test_a_sweep_is_found_by_its_id_its_name_and_the_beginning_of_its_id(
    server: FakeServer, client: Client, approved: Approved
) -> None:
    server.on(OF_ONE, sweep())
    server.on(PATH, page([sweep(), sweep(id="swp_0192a1", name="other")]))
    for ref in (ID, "lr", "swp_0192a0"):
        assert client.sweeps.get(ref).id == ID
    with pytest.raises(Conflict) as raised:
        client.sweeps.get("swp_0192a")
    assert str(raised.value) == approved("message")
    server.on(PATH, page([]))
    for ref in ("absent", "swp_", "swp_9999"):
        with pytest.raises(NotFound) as raised:
            client.sweeps.get(ref)
        assert str(raised.value) == approved("no sweep with", ref=ref)


def test_of_several_sweeps_of_a_name_the_newest_is_meant(server: FakeServer, client: Client) -> None:
    server.on(PATH, page([sweep(), sweep(id="swp_0192a1")]))
    server.on(OF_ONE, sweep())
    assert client.sweeps.get("lr").id == ID
    assert [request.query.get("name") for request in server.requests] == [["lr"], None]


def test_sweeps_and_trials_are_listed_page_by_page(server: FakeServer, client: Client) -> None:
    server.on(PATH, page([sweep()], more=True, next="x"), page([sweep(id="swp_2")]))
    found = client.sweeps.list(state=[SweepState.PAUSED, SweepState.RUNNING], owner="ada")
    assert [item.id for item in found] == [ID, "swp_2"]
    query = {"limit": ["100"], "state": ["paused", "running"], "owner": ["ada"]}
    assert [request.query for request in server.requests] == [query, {**query, "after": ["x"]}]
    server.on(f"{OF_ONE}/trials", page([trial(1, value=0.5, rank=1), trial(0, value="NaN")]))
    best, other = client.sweeps.trials(ID)
    assert (best.number, best.value, best.rank) == (1, 0.5, 1)
    assert other.value is not None and other.value != other.value  # NaN
    assert server.requests[-1].query["sort"] == ["value"]
    assert [item.number for item in client.sweeps.trials(ID, sort="number", limit=1)] == [1]


@pytest.mark.parametrize("action", ["pause", "resume", "cancel"])
def test_a_sweep_is_changed_as_one(server: FakeServer, client: Client, action: str) -> None:
    server.on(f"{OF_ONE}/{action}", Answer(sweep(version=2), 202))
    assert getattr(client.sweeps, action)(ID).version == 2
    assert (server.requests[-1].method, server.requests[-1].body) == ("POST", b"")


def test_a_sweep_is_extended_and_a_trial_promoted(server: FakeServer, client: Client) -> None:
    server.on(f"{OF_ONE}/extend", sweep(version=2))
    client.sweeps.extend(ID, trials=5)
    assert sent(server) == {"trials": 5}
    client.sweeps.extend(ID, points=[{"args.lr": 1}], max_parallel=2)
    assert sent(server) == {"points": [{"args.lr": 1}], "max_parallel": 2}
    server.on(f"{OF_ONE}/trials/7/promote", Answer(trial(7, rung=2), 202))
    assert client.sweeps.promote(ID, 7).rung == 2
    server.on(OF_ONE, Answer(b"", 204))
    client.sweeps.delete(ID)
    assert (server.requests[-1].method, server.requests[-1].query) == ("DELETE", {})
    client.sweeps.delete(ID, jobs=True)
    assert server.requests[-1].query == {"jobs": ["true"]}


def test_waiting_returns_the_sweep_when_it_has_ended(server: FakeServer, client: Client, approved: Approved) -> None:
    server.on(OF_ONE, sweep(state="failed", finished_at=NOW))
    assert client.sweeps.wait(ID).state == SweepState.FAILED
    server.on(OF_ONE, sweep())
    with pytest.raises(TimeoutError) as raised:
        client.sweeps.wait(ID, timeout=0)
    assert str(raised.value) == approved("message")
