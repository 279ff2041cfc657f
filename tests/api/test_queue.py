"""`GET /v1/queue`: the order in which workers try to start jobs, and why each waits."""

from typing import Any

from store.jobs import jobs, reasons
from tests import line
from tests.api.service import ApiFixture, both_databases
from tests.approved import Approved
from tests.databases import quick_on_sqlite
from torchyard.contract.queue.views import QueueEntry
from torchyard.contract.states import Reason


def places(page: dict[str, Any]) -> list[tuple[int, str]]:
    return [(entry["position"], entry["job_id"]) for entry in page["data"]]


@both_databases
def test_the_queue_lists_jobs_in_the_workers_order_with_their_reasons(service: ApiFixture) -> None:
    low, first, second = (service.submit(name=f"p{priority}", priority=priority)["id"] for priority in (-5, 3, 3))
    running = service.submit(priority=9)["id"]
    service.start(running)
    with service.database.write() as session:
        jobs.set_waiting_reason(session, [first], Reason("devices_busy", "needs 1 CPU slot; 0 free on box-a"))
    page = service.get("/v1/queue")
    assert places(page) == [(1, first), (2, second), (3, low)]
    assert [job_id for _, job_id in places(page)] == line.waiting(service.queue)[1:]
    entry = QueueEntry.model_validate(page["data"][0])
    assert (entry.name, entry.owner, entry.priority, entry.resources.devices_per_node) == ("p3", "admin", 3, 1)
    assert entry.reason is not None
    assert (entry.reason.code, entry.reason.message) == ("devices_busy", "needs 1 CPU slot; 0 free on box-a")
    assert entry.not_before is None
    assert entry.reason.since >= entry.created_at
    for place, job_id in places(page):
        assert service.get(f"/v1/jobs/{job_id}")["status_reason"]["position"] == place


@both_databases
def test_a_queued_job_names_the_job_that_blocks_it_to_who_may_list_that(
    service: ApiFixture, approved: Approved
) -> None:
    service.start(service.submit(name="merger")["id"])
    service.act_as("bob")
    waits = service.submit(resources={"devices_per_node": 2})["id"]
    with service.database.write() as session:
        jobs.set_waiting_reason(session, [waits], Reason("devices_busy", "needs 2 devices; 1 free on box-a"))
    said = [service.get("/v1/queue")["data"][0]["reason"]["message"]]
    service.act_as("admin")
    said.append(service.get("/v1/queue")["data"][0]["reason"]["message"])
    assert "\n".join(said) == approved("to bob, and to the administrator")


@quick_on_sqlite
def test_the_reason_of_a_group_is_the_reason_of_each_of_its_jobs(service: ApiFixture) -> None:
    first, second = service.submit()["id"], service.submit()["id"]
    other = service.submit(resources={"devices_per_node": 2})["id"]
    with service.database.write() as session:
        shape = jobs.require(session, first).shape
        reasons.store_reasons(session, {shape: Reason("devices_busy", "needs 1 device; 0 free on box-a")})
    queued = {entry["job_id"]: entry["reason"] for entry in service.get("/v1/queue")["data"]}
    listed = {job["id"]: job["status_reason"] for job in service.get("/v1/jobs")["data"]}
    for job_id, code in ((first, "devices_busy"), (second, "devices_busy"), (other, "waiting")):
        shown = service.get(f"/v1/jobs/{job_id}")["status_reason"]
        assert queued[job_id]["code"] == listed[job_id]["code"] == shown["code"] == code
    assert service.submit()["status_reason"]["code"] == "devices_busy", "a new one waits for the same"
    service.client.post(f"/v1/jobs/{first}/pause")
    assert service.get(f"/v1/jobs/{first}")["status_reason"]["code"] == "paused"


@both_databases
def test_another_users_private_job_is_shown_without_id_name_and_reason(service: ApiFixture) -> None:
    hidden = service.submit(priority=1, name="merger", labels={"for": "acme"})["id"]
    service.submit(visibility="team", name="ours")
    service.act_as("bob")
    mine = service.submit(name="mine")["id"]
    first, second, third = service.get("/v1/queue")["data"]
    assert (first["position"], first["owner"], first["priority"]) == (1, "admin", 1)
    assert (first["job_id"], first["name"], first["reason"]) == (None, None, None)
    assert (second["name"], second["reason"]["code"]) == ("ours", "waiting")
    assert (third["position"], third["job_id"], third["name"]) == (3, mine, "mine")
    pages = [service.client.get("/v1/queue", params={"limit": 1}).text for _ in range(2)]
    for word in (hidden, hidden.removeprefix("job_"), "merger", "acme"):
        assert all(word not in page for page in pages), "not in the cursor either"
    behind = service.get("/v1/queue", limit=1)["next"]
    assert [entry["position"] for entry in service.get("/v1/queue", after=behind)["data"]] == [2, 3]


@both_databases
def test_pages_stay_correct_while_the_queue_changes(service: ApiFixture) -> None:
    waiting = [service.submit(priority=priority)["id"] for priority in (5, 5, 0, 0, 0, -1)]
    page = service.get("/v1/queue", limit=3)
    assert places(page) == [(1, waiting[0]), (2, waiting[1]), (3, waiting[2])]
    assert page["total"] == 6
    # The jobs of the first page leave the queue, and new jobs come before and after them.
    for job_id in waiting[:3]:
        service.client.post(f"/v1/jobs/{job_id}/cancel")
    service.submit(priority=7)
    behind = service.submit(priority=-1)["id"]
    page = service.get("/v1/queue", limit=2, after=page["next"])
    assert places(page) == [(2, waiting[3]), (3, waiting[4])]
    page = service.get("/v1/queue", limit=2, after=page["next"])
    assert places(page) == [(4, waiting[5]), (5, behind)]
    assert (page["has_more"], page["next"], page["total"]) == (False, None, 5)


def test_a_cursor_of_another_list_is_refused(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    for cursor in (job_id, "5", "5:", f"x:{job_id}", f"5:{job_id}0", "1000:" + job_id):
        answer = service.client.get("/v1/queue", params={"after": cursor})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_cursor"), cursor


def test_an_empty_queue_is_an_empty_list(service: ApiFixture) -> None:
    assert service.get("/v1/queue") == {"data": [], "has_more": False, "next": None, "total": 0}
