"""What a stop would cost: asked for before a cancel, a pause or a drain, which then do nothing."""

from typing import Any

import pytest
from sqlalchemy import update

from api.present import prices
from scheduling.snapshot import Placement
from store.attempts import claim as claims
from store.attempts import state as attempts
from store.attempts.facts import Claim, StopPrice
from store.jobs import stop
from store.tables import Attempt, Base, Checkpoint, Job
from store.team.callers import Caller
from tests.api.bundles import packed_files, upload_whole
from tests.api.service import ApiFixture, both_databases
from tests.api.test_pools import GPU, serve
from tests.approved import Approved
from tests.store.fixture import recorded_statements
from torchyard.contract.queue.price import Stake
from torchyard.contract.states import EndReason, Reason
from torchyard.contract.team.roles import Role

MINUTE = 60_000_000
SAVED = {"state.pt": b"x"}


def priced(service: ApiFixture, path: str, **params: Any) -> dict[str, Any]:
    answer = service.client.post(path, params={"dry_run": True, **params})
    assert answer.status_code == 200, answer.text
    return answer.json()


def shift(service: ApiFixture, claim: Claim, *, minutes: int) -> None:
    """Lets the attempt and its checkpoints have been so much earlier."""
    of_attempt = Checkpoint.job_id == claim.job_id, Checkpoint.attempt == claim.number
    with service.database.write() as session:
        for table, conditions in ((Attempt, [Attempt.id == claim.attempt_id]), (Checkpoint, of_attempt)):
            columns = ("started_at", "running_at") if table is Attempt else ("created_at",)
            earlier = {name: getattr(table, name) - minutes * MINUTE for name in columns}
            session.execute(update(table).where(*conditions).values(**earlier))


def trained(service: ApiFixture, claim: Claim, *, step: object, saved: int | None) -> None:
    """Lets the job have saved 18 minutes ago, and trained since up to this step."""
    if saved is not None:
        service.record(claim, checkpoints=[service.new_checkpoint(step=saved, files=SAVED)])
    service.record(claim, progress={"step": (saved or 0) + 1}, reports=True)
    with service.database.write() as session:
        session.execute(update(Job).where(Job.id == claim.job_id).values(progress={"step": step}))
    shift(service, claim, minutes=18)


def rows(service: ApiFixture) -> dict[str, list[Any]]:
    with service.database.read() as session:
        return {table.name: [*session.execute(table.select())] for table in Base.metadata.sorted_tables}


@both_databases
def test_a_price_tells_the_work_since_the_newest_checkpoint_and_does_nothing(
    service: ApiFixture, approved: Approved
) -> None:
    job = service.submit()
    claim = service.start(job["id"])
    trained(service, claim, step=3412, saved=3000)
    before = rows(service)
    price = priced(service, f"/v1/jobs/{job['id']}/pause")
    seconds = price["device_seconds"]
    assert 18 * 60 <= seconds < 20 * 60
    lost = "412 steps (18 CPU-min) are lost"
    told = {"kind": "cpu", "devices": 1, "steps": 412, "device_seconds": seconds, "resumes_at_step": 3000}
    named = {"job_id": job["id"], "name": "digits", "owner": "admin"}
    assert price == {
        "jobs": [{**named, **told, "message": f"up to {lost}; resumes at step 3,000"}],
        "total": 1,
        "device_seconds": seconds,
        "message": approved("saves first if", lost=lost),
    }
    cancel = priced(service, f"/v1/jobs/{job['id']}/cancel")
    assert cancel["message"] == approved("message", lost=lost)
    killed = priced(service, f"/v1/jobs/{job['id']}/cancel", now=True)
    assert killed["message"] == approved("killed saves nothing", lost=lost)
    drain = priced(service, f"/v1/workers/{service.worker_id}/drain")
    assert drain["message"] == approved("saves first if", lost=lost)
    many = service.client.post("/v1/jobs/actions", json={"action": "cancel", "filter": {}, "dry_run": True}).json()
    assert (many["matched"], many["price"]["total"], many["price"]["message"]) == (1, 1, cancel["message"])
    assert rows(service) == before


def test_a_job_that_does_not_run_costs_nothing(service: ApiFixture, approved: Approved) -> None:
    job_id = service.submit()["id"]
    for action in ("cancel", "pause"):
        price = priced(service, f"/v1/jobs/{job_id}/{action}")
        assert price == {
            "jobs": [],
            "total": 0,
            "device_seconds": 0,
            "message": approved("nothing lost does"),
        }
    service.start(service.submit()["id"])
    empty = service.client.post("/v1/jobs/actions", json={"action": "pause", "ids": [job_id], "dry_run": True}).json()
    assert empty["price"]["message"] == approved("message")
    other = service.client.post("/v1/jobs/actions", json={"action": "star", "ids": [job_id], "dry_run": True}).json()
    assert "price" not in other


def test_a_price_is_refused_as_the_stop_would_be(service: ApiFixture) -> None:
    ended, cancelled = service.submit()["id"], service.submit()["id"]
    service.end(service.start(ended), reason=EndReason.COMPLETED)
    service.client.post(f"/v1/jobs/{cancelled}/cancel")
    private, shared = service.submit()["id"], service.submit(visibility="team")["id"]
    unknown = f"job_{'0' * 32}"
    for role, paths in {
        None: [f"jobs/{ended}/cancel", f"jobs/{ended}/pause", f"jobs/{cancelled}/pause", f"jobs/{cancelled}/cancel"],
        Role.MEMBER: [
            f"jobs/{job}/{action}" for job in (private, shared, unknown, "x") for action in ("cancel", "pause")
        ],
        Role.OPERATOR: [f"jobs/{job}/cancel?now=true" for job in (private, shared)] + ["workers/wrk_1/drain"],
        Role.VIEWER: [f"jobs/{shared}/cancel", f"workers/wrk_{'0' * 32}/drain"],
    }.items():
        if role is not None:
            service.act_as(str(role), role)
        for path in paths:
            dry = service.client.post(f"/v1/{path}{'&' if '?' in path else '?'}dry_run=true")
            real = service.client.post(f"/v1/{path}")
            if real.status_code == 202:
                assert dry.status_code == 200, path
            else:
                assert (dry.status_code, dry.json()["code"]) == (real.status_code, real.json()["code"]), path


def test_an_operator_sees_what_a_drain_stops_and_others_may_not_ask(service: ApiFixture) -> None:
    service.act_as("alice")
    private, shared = service.submit(name="secret")["id"], service.submit(name="open", visibility="team")["id"]
    trained(service, service.start(private), step=5, saved=None)
    service.start(shared, device="cpu-1")
    drain = f"/v1/workers/{service.worker_id}/drain"
    service.act_as("operator", Role.OPERATOR)
    found = priced(service, drain)["jobs"]
    assert [job["name"] for job in found] == ["secret", "open"]
    assert [job["steps"] for job in found] == [None, 0], "who lists a private job does not read its progress"
    service.act_as("bob")
    assert service.client.post(f"{drain}?dry_run=true").status_code == 403


def test_who_may_not_read_a_job_is_not_told_what_it_has_trained_or_saved(approved: Approved) -> None:
    stake = Stake("cuda", 18 * MINUTE, 412, 3000)
    views = []
    for owner in ("alice", "operator"):
        one = StopPrice("job_1", "secret", owner, "private", 1, stake, "first")
        views.append(prices.stops([one], Caller("operator", Role.OPERATOR)))
    unread, own = views
    assert [(view.jobs[0].job_id, view.jobs[0].name, view.device_seconds) for view in views] == [
        ("job_1", "secret", 1080.0)
    ] * 2
    assert (unread.jobs[0].steps, unread.jobs[0].resumes_at_step) == (None, None)
    assert unread.message == unread.jobs[0].message == "up to 18 GPU-min are lost"
    assert own.message == approved("message")


def test_jobs_that_the_caller_may_not_list_are_not_named(approved: Approved) -> None:
    stake = Stake("cuda", 18 * MINUTE, 412, 3000)
    found = [StopPrice("job_1", "secret", "alice", seen, 1, stake, "first") for seen in ("private", "team")]
    view = prices.stops(found, Caller("bob", Role.MEMBER))
    assert [(job.job_id, job.name, job.owner) for job in view.jobs] == [
        (None, None, "alice"),
        ("job_1", "secret", "alice"),
    ]
    assert view.message == approved("message")


def test_a_lying_number_of_steps_is_not_told(service: ApiFixture, approved: Approved) -> None:
    job_id = service.submit()["id"]
    trained(service, service.start(job_id), step=3412, saved=3000)
    for step, steps in ((-5, None), (2**80, None), (10, None), ("x", None), (None, None), (True, None), (3000, 0)):
        with service.database.write() as session:
            session.execute(update(Job).where(Job.id == job_id).values(progress={"step": step}))
        (price,) = priced(service, f"/v1/jobs/{job_id}/pause")["jobs"]
        assert (price["steps"], price["message"]) == (steps, approved("message")), step


def test_a_clock_that_jumped_makes_no_negative_price(service: ApiFixture, approved: Approved) -> None:
    job_id = service.submit()["id"]
    claim = service.start(job_id)
    trained(service, claim, step=3412, saved=3000)
    shift(service, claim, minutes=-60)
    price = priced(service, f"/v1/jobs/{job_id}/pause")
    assert price["device_seconds"] == 0
    assert price["jobs"][0]["message"] == approved("message")


def test_an_attempt_that_has_told_no_step_has_lost_no_steps_of_an_earlier_one(
    service: ApiFixture, approved: Approved
) -> None:
    job_id = service.submit()["id"]
    claim = service.start(job_id)
    trained(service, claim, step=3412, saved=3000)
    service.end(claim, reason=EndReason.PREEMPTED)
    again = service.start(job_id)
    service.record(again, card={"model": {"name": "cnn"}}, reports=True)
    shift(service, again, minutes=18)
    (price,) = priced(service, f"/v1/jobs/{job_id}/pause")["jobs"]
    assert (price["steps"], price["message"]) == (0, approved("message"))


def test_a_job_in_a_pool_costs_the_devices_of_all_its_nodes_once_it_runs(
    service: ApiFixture, approved: Approved
) -> None:
    serve(service, GPU)
    job = service.submit(resources={"nodes": 2, "devices_per_node": 4})
    with service.database.write() as session:
        claim = claims.claim(session, job["id"], Placement("wrk_gpu", ()), holder="head")
    assert claim is not None
    path = f"/v1/jobs/{job['id']}/cancel"
    assert priced(service, path)["message"] == approved("message")
    with service.database.write() as session:
        attempts.mark_running(session, claim, reason=Reason("running", "runs"))
    shift(service, claim, minutes=9)
    (price,) = priced(service, path)["jobs"]
    assert (price["kind"], price["devices"], 72 * 60 <= price["device_seconds"] < 80 * 60) == ("cuda", 8, True)
    assert price["message"] == approved("gpu minutes retry")


def test_a_preempted_job_tells_once_what_was_at_stake(service: ApiFixture) -> None:
    job_id = service.submit(preemptible=True)["id"]
    claim = service.start(job_id)
    trained(service, claim, step=3412, saved=3000)
    other = service.submit(priority=5)["id"]
    with service.database.write() as session:
        assert stop.request_preempt(session, [job_id], preemptor=other)
    said = (
        "preempted by a job of admin (priority 5): saves a checkpoint first; if that fails, "
        "412 steps (18 CPU-min) are lost; resumes at step 3,000"
    )
    service.record(claim, checkpoints=[service.new_checkpoint(step=3500, files=SAVED)])
    assert service.get(f"/v1/jobs/{job_id}")["status_reason"]["message"] == said
    events = service.get(f"/v1/jobs/{job_id}/events")["data"]
    assert [event["data"]["text"] for event in events if event["type"] == "message"] == [said]


def test_many_jobs_are_priced_by_as_many_statements_as_one(service: ApiFixture) -> None:
    ids = [service.submit()["id"] for _ in range(12)]
    for index, job_id in enumerate(ids):
        service.start(job_id, device=f"cpu-{index}")

    def statements(chosen: list[str]) -> int:
        with recorded_statements(service.app.state.services.store.database) as found:
            answer = service.client.post(
                "/v1/jobs/actions", json={"action": "cancel", "filter": {"name": "digits"}, "dry_run": True}
            )
        assert answer.json()["price"]["total"] == len(chosen)
        return len(found)

    all_of_them = statements(ids)
    with service.database.write() as session:
        session.execute(update(Job).where(Job.id.in_(ids[1:])).values(name="other"))
    assert statements(ids[:1]) == all_of_them


def test_only_the_hundred_most_expensive_jobs_are_shown(approved: Approved) -> None:
    found = [
        StopPrice(f"job_{minutes}", "digits", "ada", "team", 1, Stake("cpu", minutes * MINUTE, None, None), "first")
        for minutes in range(100, -1, -1)
    ]
    price = prices.stops(found, Caller("ada", Role.MEMBER))
    assert [job.job_id for job in price.jobs] == [one.job_id for one in found[:100]]
    assert (price.total, price.message) == (101, approved("message"))


@both_databases
@pytest.mark.parametrize("in_place", [False, True])
def test_a_script_without_a_checkpoint_goes_on_with_its_working_folder(
    service: ApiFixture, approved: Approved, in_place: bool
) -> None:
    upload_whole(service.client, bundle := packed_files({"train.py": b"print(1)"}))
    code = "file:///srv/code" if in_place else f"bundle:sha256:{bundle.sha256}"
    job_id = service.submit(trainer="script", config={"code": code, "entrypoint": "train.py"})["id"]
    claim = service.start(job_id)
    shift(service, claim, minutes=18)
    (price,) = priced(service, f"/v1/jobs/{job_id}/pause")["jobs"]
    assert price["resumes_at_step"] is None
    assert price["message"] == approved.of_row("paused")
    (price,) = priced(service, f"/v1/jobs/{job_id}/cancel")["jobs"]
    assert price["message"] == approved.of_row("cancelled")
