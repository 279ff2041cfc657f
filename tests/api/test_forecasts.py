"""Forecasts that were asked for: when a job would start, what would start it at once, and what that may cost."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection, event
from sqlalchemy.exc import OperationalError

from api import forecasts
from api.limits.budget import Budget
from api.limits.forecasts import ForecastLimits
from api.limits.rates import Rates
from store.cluster import workers
from store.jobs import new_jobs, prospects
from store.jobs.prospects import Ahead, Forecast, Foresight, Waits
from store.jobs.submission import Prospect, Submission
from store.queue.estimates_facts import Seen
from store.team.callers import Caller
from tests.api.service import SPEC, ApiFixture, both_databases
from tests.api.writes import Writes, writes
from tests.scheduling.clusters import HOUR, NOW, host, runs, seen, slots, waits
from tests.sessions import read
from tests.store.fixture import recorded_statements
from torchyard.contract.spec.spec import parse_spec
from torchyard.contract.states import Reason
from torchyard.contract.team.roles import Role

SLOTS = [{"index": index, "uuid": f"cpu-{index}", "name": "CPU slot", "kind": "cpu"} for index in range(2)]
LONG: Mapping[str, Any] = {"time_limit": "10h"}


def foreseen(service: ApiFixture, **spec: Any) -> dict[str, Any]:
    answer = service.client.post("/v1/jobs/validate?forecast=true", json={**SPEC, **spec})
    assert answer.status_code == 200, answer.text
    return answer.json()["waits_for"]


def submitted(service: ApiFixture, **spec: Any) -> dict[str, Any]:
    answer = service.client.post("/v1/jobs?forecast=true", json={**SPEC, **spec})
    assert answer.status_code == 201, answer.text
    return answer.json()


def add_worker(service: ApiFixture) -> None:
    with service.database.write() as session:
        workers.register(session, service.worker_id, name="box-a", devices=SLOTS)


def fill(service: ApiFixture) -> dict[str, Any]:
    """Runs a job of ten hours on one of the two slots, before one that wants both."""
    running = service.submit(**LONG)
    service.start(running["id"])
    service.submit(name="wide", resources={"devices_per_node": 2}, **LONG)
    return service.get(f"/v1/jobs/{running['id']}")


def changes(found: Mapping[str, Any]) -> dict[str, str]:
    return {one["change"]: one["value"] for one in found.get("starts_if", [])}


@both_databases
def test_a_job_that_waits_is_told_when_it_starts_and_what_would_start_it_now(service: ApiFixture) -> None:
    running = fill(service)
    found = foreseen(service, time_limit="24h")
    assert (found["fits"], found["code"], found["position"]) == (False, "devices_busy", 2)
    assert found["starts_if"] == [
        {"change": "time_limit", "value": "8h", "message": "with `time_limit` ≤ 8h"},
    ]
    estimate = found["estimate"]
    ends = datetime.fromisoformat(running["started_at"]) + timedelta(hours=10)
    assert abs(datetime.fromisoformat(estimate["expected"]) - ends) < timedelta(hours=10, seconds=9)
    assert (estimate["low"], estimate["high"], estimate["held"], estimate["of"]) == (None, None, 0, 0)
    assert "later_than" not in found
    assert len(service.get("/v1/queue")["data"]) == 1, "nothing was stored"


def test_a_job_that_fits_is_told_so_alone(service: ApiFixture) -> None:
    add_worker(service)
    assert foreseen(service) == {"fits": True, "code": None, "message": None, "position": 1}
    assert submitted(service)["waits_for"] == {"fits": True, "code": None, "message": None, "position": 1}


def test_a_submission_that_asks_is_told_and_no_other(service: ApiFixture) -> None:
    fill(service)
    told = submitted(service, time_limit="24h")
    found = told.pop("waits_for")
    assert (found["fits"], changes(found)) == (False, {"time_limit": "8h"})
    assert found["estimate"]["expected"] > told["created_at"]
    assert told["status_reason"]["estimate"] == found["estimate"]
    shown = service.get(f"/v1/jobs/{told['id']}")
    assert {**told, "status_reason": None} == {**shown, "status_reason": None}
    assert "waits_for" not in service.submit()


def test_a_repeated_submission_is_told_nothing_new(service: ApiFixture) -> None:
    fill(service)
    headers = {"Idempotency-Key": "once"}
    for is_first in (True, False):
        answer = service.client.post("/v1/jobs?forecast=true", json=SPEC, headers=headers)
        assert (answer.status_code, "waits_for" in answer.json()) == (201, is_first)


def test_more_devices_than_are_free_may_be_fewer(service: ApiFixture) -> None:
    add_worker(service)
    service.start(service.submit()["id"])
    found = foreseen(service, resources={"devices_per_node": 2})
    assert (found["code"], changes(found)) == ("reserved", {"devices": "1"})
    assert found["starts_if"][0]["message"] == "on 1 device"


def test_what_fits_nowhere_has_no_estimate_and_its_reason_says_why(service: ApiFixture) -> None:
    add_worker(service)
    large = foreseen(service, resources={"devices_per_node": 1024})
    assert (large["code"], changes(large)) == ("too_big", {"devices": "2"})
    other = foreseen(service, resources={"device": "cuda"})
    assert (other["code"], changes(other)) == ("no_such_device", {})
    assert not {"estimate", "later_than"} & {*large, *other}


def test_who_is_refused_or_waits_for_other_jobs_has_no_estimate(service: ApiFixture) -> None:
    add_worker(service)
    service.act_as("bob")
    service.act_as("admin")
    service.client.put("/v1/quotas/users/bob", json={"devices": 1})
    service.act_as("bob")
    refused = foreseen(service, resources={"devices_per_node": 2})
    first = service.submit(name="first")
    later = foreseen(service, after=[{"job": first["id"]}])
    stored = submitted(service, after=[{"job": first["id"]}])["waits_for"]
    assert [found["code"] for found in (refused, later, stored)] == ["quota", "waits_for_jobs", "waits_for_jobs"]
    for found in (refused, later, stored):
        assert not {"estimate", "later_than", "starts_if"} & found.keys()
        assert found["position"] is None


def test_whom_a_quota_holds_back_in_the_line_is_told_when_the_quota_lets_it_start(service: ApiFixture) -> None:
    fill(service)
    service.client.put("/v1/quotas/users/admin", json={"running": 1})
    found = foreseen(service, time_limit="1h")
    assert (found["code"], found["position"], changes(found)) == ("quota", 2, {})
    assert found["estimate"]["expected"] > found["estimate"]["made_at"]


def test_who_asks_wrongly_or_may_not_submit_is_told_so(service: ApiFixture) -> None:
    for path in ("/v1/jobs/validate", "/v1/jobs"):
        answer = service.client.post(f"{path}?forecast=perhaps", json=SPEC)
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "forecast")
    assert service.get("/v1/jobs")["data"] == []
    service.act_as("eve", Role.VIEWER)
    assert service.client.post("/v1/jobs?forecast=true", json=SPEC).status_code == 403
    assert foreseen(service)["code"] == "no_such_device", "a viewer may validate"


def test_advice_says_what_would_start_a_job_that_waits(service: ApiFixture) -> None:
    fill(service)
    wide = service.get("/v1/queue")["data"][0]
    assert changes(service.get(f"/v1/jobs/{wide['job_id']}/advice")) == {"devices": "1"}
    waiting = service.submit(time_limit="24h")
    assert changes(service.get(f"/v1/jobs/{waiting['id']}/advice")) == {"time_limit": "8h"}
    # Nothing is kept for a new one: the other job would start before it.
    assert changes(service.get(f"/v1/jobs/{wide['job_id']}/advice")) == {}
    service.act_as("bob")
    assert service.client.get(f"/v1/jobs/{waiting['id']}/advice").status_code == 404


def test_a_database_that_goes_away_after_the_submission_takes_the_forecast_alone(service: ApiFixture) -> None:
    fill(service)
    with writes(service) as seen, _away_after(service, seen):
        assert "waits_for" not in submitted(service)
        answer = service.client.post("/v1/jobs/validate?forecast=true", json=SPEC)
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert "waits_for" in submitted(service)


def test_a_forecast_only_reads_and_holds_no_connection_while_it_looks_ahead(service: ApiFixture) -> None:
    fill(service)
    services = service.app.state.services
    with recorded_statements(services.store.database) as plain:
        service.submit(**LONG)
    with recorded_statements(services.store.database) as asked:
        told = submitted(service, **LONG)
    assert asked[: len(plain)] == plain, "a submission alone costs what it did"
    assert len(asked) > len(plain)
    assert all(text.lstrip().startswith(("SELECT", "WITH")) for text in asked[len(plain) :])
    engine = services.store.database.engine
    with_limit = {"max_stop_grace": services.settings.max_stop_grace}
    found = read(services.store, prospects.of_job, told["id"], **with_limit)
    assert found is not None
    parts = forecasts.forecast(
        found, forecasts.budget(), read=partial(read, services.store, prospects.find_ahead, **with_limit)
    )
    for _ in parts:
        assert engine.pool.checkedout() == 0


def test_each_user_may_ask_at_a_rate_and_a_submission_goes_on_without(service: ApiFixture) -> None:
    fill(service)
    state = service.app.state
    limits = ForecastLimits(state.services.forecasts.turns, Rates(per_second=1e-3, burst=2))
    state.services = replace(state.services, forecasts=limits)
    service.act_as("bob")
    wide = {"resources": {"devices_per_node": 2}, **LONG}
    for _ in range(2):
        assert "estimate" in foreseen(service, **wide)
    answer = service.client.post("/v1/jobs/validate?forecast=true", json=SPEC)
    assert (answer.status_code, answer.json()["code"]) == (429, "too_many_requests")
    assert "waits_for" not in submitted(service, **wide)
    assert service.get(f"/v1/jobs/{service.submit(**wide)['id']}/advice")["starts_if"] == []
    service.act_as("eve")
    assert "estimate" in foreseen(service, **wide), "one who asks much takes nobody's turn"


def test_a_forecast_in_a_huge_line_ends_with_its_budget(service: ApiFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """400 jobs of 200 owners wait. Each look at the clock of the processor counts as 2.5 ms."""
    fill(service)
    spec = parse_spec(SPEC)
    with service.database.write() as session:
        callers = [Caller(f"user{number}", Role.MEMBER) for number in range(200)]
        new_jobs.insert_all(session, [Submission(spec, callers[number % 200], "private") for number in range(400)])
    looks: list[Budget] = []

    def budget() -> Budget:
        looks.append(Budget(0.2, within_s=60, processor=lambda: 0.0025 * looks_at.__next__()))
        return looks[-1]

    looks_at = iter(range(1_000_000))
    monkeypatch.setattr(forecasts, "budget", budget)
    found = foreseen(service, time_limit="24h")
    assert found["position"] == 402
    assert "estimate" not in found
    assert datetime.fromisoformat(found["later_than"]) > datetime.fromisoformat("2020-01-01T00:00:00Z")
    assert looks[0].left_s <= 0.001


def test_a_forecast_that_ends_early_says_what_it_has_reached() -> None:
    """Each look at the clock counts as a millisecond, so that all has less than 200 pieces."""
    others = [runs(f"r{number}", on="wrk_here", limit_us=(2 + number) * HOUR + 1) for number in range(64)]
    told: dict[str, Any] = {"limit_us": 23 * HOUR}
    line = [
        waits(f"j{number}", 8, owner=f"u{number % 100}", submitted=NOW - HOUR + number, **told) for number in range(200)
    ]
    job = waits("new", 1, submitted=NOW, priority=-1)
    snapshot = seen(*line, job, hosts=[host(slots(*(one.job_id for one in others)))], running=others)
    found = Foresight(Prospect(Reason("devices_busy", ""), 201), Waits(job, snapshot))
    ticks = iter(range(1_000_000))
    made = drained(found, Budget(0.2, within_s=60, processor=lambda: next(ticks) / 1000), Seen(snapshot))
    assert made.estimate is None
    assert made.later_than is not None and made.later_than >= NOW
    rich = drained(found, Budget(1e9, within_s=60), Seen(snapshot))
    assert rich.estimate is not None and rich.estimate.expected is not None
    assert rich.estimate.expected >= made.later_than


def test_a_job_behind_others_that_nobody_looked_at_has_no_estimate() -> None:
    other, job = runs("other", limit_us=3 * HOUR), waits("job")
    snapshot = seen(job, hosts=[host(slots("other"))], running=[other])
    found = Foresight(Prospect(Reason("devices_busy", ""), 1), Waits(job, snapshot))
    near = drained(found, Budget(1e9, within_s=60), Seen(snapshot))
    assert near.estimate is not None
    assert (near.estimate.expected, near.estimate.made_at, near.later_than) == (NOW + 2 * HOUR, NOW, None)
    line = replace(Seen(snapshot), after=1800, is_newcomer_behind=True)
    far = drained(found, Budget(1e9, within_s=60), line)
    assert (far.estimate, far.later_than) == (None, NOW + 2 * HOUR)


def test_a_job_that_never_starts_has_neither_estimate_nor_bound() -> None:
    job = waits("job", 3)
    snapshot = seen(job, hosts=[host(slots("other", None))], running=[runs("other")])
    found = Foresight(Prospect(Reason("devices_busy", ""), 1), Waits(job, snapshot))
    made = drained(found, Budget(1e9, within_s=60), Seen(snapshot))
    assert (made.estimate, made.later_than) == (None, None)
    assert [one.value for one in made.alternatives] == ["1"]


@contextmanager
def _away_after(service: ApiFixture, seen: Writes) -> Generator[None]:
    """Has the database be away for reads as soon as anything was committed."""
    engine = service.app.state.services.store.database.engine

    def refuse(connection: Connection) -> None:
        if seen.commits:
            raise OperationalError("BEGIN", None, ConnectionError("the server is away"))

    event.listen(engine, "begin", refuse)
    try:
        yield
    finally:
        event.remove(engine, "begin", refuse)


def drained(found: Foresight, budget: Budget, line: Seen) -> Forecast:
    parts = forecasts.forecast(found, budget, read=lambda _: Ahead(line))
    while True:
        try:
            next(parts)
        except StopIteration as end:
            return end.value
