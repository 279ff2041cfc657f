"""Usage over REST: by user for everyone, by label for who may see the jobs, and as CSV."""

import csv
from datetime import UTC, datetime
import io
from typing import Any

import pytest
from sqlalchemy import update

from store.attempts import folders
from store.cluster.usage_facts import DAY_US
from store.db.database import now_us
from store.output.facts import NewArtifact
from store.tables import DeviceDay, Usage
from tests.api.service import ApiFixture, both_databases
from tests.rows import each_row
from tests.store.fixture import checkpoint
from torchyard.contract.states import EndReason
from torchyard.contract.team.roles import Role

HOUR = 3_600_000_000


def had(service: ApiFixture, owner: str, label: str = "", *, days_ago: int = 0, kind: str = "cuda", **us: int) -> None:
    """Stores what an owner had on one day."""
    figures = {"held_us": 0, "measured_us": 0, "busy_us": 0, "idle_us": 0} | us
    day = now_us() // DAY_US - days_ago
    with service.database.write() as session:
        session.add(DeviceDay(owner=owner, label=label, day=0, kind=kind, **figures))
        session.flush()
        session.execute(update(DeviceDay).where(DeviceDay.day == 0).values(day=day))
        session.merge(Usage(owner=owner, kind=kind, used_s=0.0, at=0))


def rows(service: ApiFixture, **params: Any) -> list[dict[str, Any]]:
    return service.get("/v1/usage", **params)["data"]


@both_databases
def test_a_user_has_days_a_period_and_a_total(service: ApiFixture) -> None:
    assert rows(service) == []
    had(service, "ada", held_us=8 * HOUR, measured_us=4 * HOUR, busy_us=HOUR, idle_us=2 * HOUR)
    had(service, "ada", kind="cpu", held_us=HOUR // 2)
    had(service, "ada", days_ago=2, held_us=HOUR)
    had(service, "ada", days_ago=40, held_us=100 * HOUR)
    (row,) = rows(service)
    assert (row["owner"], row["label"]) == ("ada", None)
    measured = {"gpu_utilization": 0.25, "idle_gpu_hours": 2.0}
    today = datetime.now(UTC).date().isoformat()
    assert row["days"][-1] == {"gpu_hours": 8.0, "cpu_slot_hours": 0.5, **measured, "day": today}
    assert [day["gpu_utilization"] for day in row["days"]] == [None, 0.25]
    assert row["period"] == {"gpu_hours": 9.0, "cpu_slot_hours": 0.5, **measured}
    assert row["total"] == {"gpu_hours": 109.0, "cpu_slot_hours": 0.5, **measured}
    assert len(rows(service, days=366)[0]["days"]) == 3


def test_a_job_counts_while_it_runs_and_once_it_is_deleted_and_its_owner_disabled(service: ApiFixture) -> None:
    service.act_as("ada")
    job_id = service.submit()["id"]
    claim = service.start(job_id)
    assert [row["owner"] for row in rows(service)] == ["ada"]
    service.end(claim, reason=EndReason.COMPLETED)
    before = rows(service)
    assert service.client.delete(f"/v1/jobs/{job_id}").status_code == 204
    service.act_as("admin")
    assert service.client.patch("/v1/users/ada", json={"disabled": True}).status_code == 200
    assert rows(service) == before
    assert rows(service, owner="ada") == before
    assert rows(service, owner="nobody") == []


@pytest.mark.parametrize("role", list(Role))
def test_everyone_sees_the_sums_of_users_and_administrators_the_labels_of_others(
    service: ApiFixture, role: Role
) -> None:
    for owner in ("ada", "eve"):
        had(service, owner, held_us=HOUR)
        had(service, owner, "secret=name", held_us=HOUR)
    service.act_as("eve", role)
    assert [row["owner"] for row in rows(service)] == ["ada", "eve"]
    sees_all = role is Role.ADMIN
    assert [row["owner"] for row in rows(service, by="label")] == (["ada", "eve"] if sees_all else ["eve"])
    assert [row["label"] for row in rows(service, by="label", owner="eve")] == ["secret=name"]
    for format in ("json", "csv"):
        others = service.client.get("/v1/usage", params={"by": "label", "owner": "ada", "format": format})
        assert others.status_code == (200 if sees_all else 403)
        listed = service.client.get("/v1/usage", params={"by": "label", "format": format})
        assert ("ada" in listed.text) is sees_all


def test_a_token_that_may_not_read_jobs_sees_no_labels(service: ApiFixture) -> None:
    token = service.client.post("/v1/tokens", json={"scopes": ["cluster:read"]}).json()["token"]
    service.client.headers["Authorization"] = f"Bearer {token}"
    assert service.client.get("/v1/usage").status_code == 200
    assert service.client.get("/v1/usage", params={"by": "label"}).status_code == 403


def test_pages_follow_each_other_also_over_labels_of_any_text(service: ApiFixture) -> None:
    labels = ["a=", "a=b=c", "a= é\N{GRINNING FACE}\n", "b=" + "\N{GRINNING FACE}" * 200]
    for label in labels:
        had(service, "ada", label, held_us=HOUR)
    found: list[str] = []
    after: dict[str, str] = {}
    while True:
        page = service.get("/v1/usage", by="label", limit=1, **after)
        found += [row["label"] for row in page["data"]]
        if not page["has_more"]:
            break
        after = {"after": page["next"]}
    assert found == sorted(labels)


@each_row("cursor", ["?", "AB", "user-1", "0" * 2401])
def test_a_cursor_of_another_list_is_refused(service: ApiFixture, cursor: str) -> None:
    answer = service.client.get("/v1/usage", params={"after": cursor})
    assert answer.status_code == 422


def test_any_cursor_of_this_form_is_a_place(service: ApiFixture) -> None:
    had(service, "ada", held_us=HOUR)
    before, behind = ("0", "00", "61", "616", "000000"), ("ff" * 1200, "7a00" + "f09f9880" * 200)
    for cursor in (*before, *behind):
        assert len(rows(service, after=cursor)) == (cursor in before)
        assert rows(service, after=cursor, by="label") == []


def test_a_page_has_fewer_rows_where_they_may_have_more_days(service: ApiFixture) -> None:
    for number in range(102):
        had(service, f"user-{number:03}", held_us=HOUR)
    page = service.get("/v1/usage", days=366, limit=1000)
    assert (len(page["data"]), page["has_more"]) == (100, True)
    assert len(service.get("/v1/usage", days=366, limit=1000, after=page["next"])["data"]) == 2
    assert len(service.get("/v1/usage", days=30, limit=1000)["data"]) == 102


def test_csv_has_a_line_for_each_day_of_all_pages_and_no_formula(service: ApiFixture) -> None:
    for number in range(101):
        had(service, f"user-{number:03}", days_ago=1, held_us=HOUR)
    had(service, "user-000", held_us=HOUR, measured_us=HOUR, busy_us=HOUR // 2, idle_us=HOUR // 4)
    had(service, "=cmd|' /C calc'!A0", held_us=HOUR)
    answer = service.client.get("/v1/usage", params={"format": "csv", "days": 366})
    assert answer.headers["Content-Type"].startswith("text/csv")
    assert 'filename="usage.csv"' in answer.headers["Content-Disposition"]
    header, *lines = csv.reader(io.StringIO(answer.text))
    assert header == ["day", "owner", "label", "gpu_hours", "cpu_slot_hours", "gpu_utilization", "idle_gpu_hours"]
    assert len(lines) == 103
    assert lines[0][1] == "'=cmd|' /C calc'!A0"
    assert lines[1][1:] == ["user-000", "", "1.0", "0.0", "", "0.0"]
    assert lines[2][1:] == ["user-000", "", "1.0", "0.0", "0.5", "0.25"]
    of_one = service.client.get("/v1/usage", params={"format": "csv", "by": "label", "owner": "nobody"})
    assert of_one.text.count("\n") == 1


@each_row(
    "params", [{"days": 0}, {"days": 367}, {"by": "job"}, {"format": "xml"}, {"owner": "\0"}, {"owner": "x" * 301}]
)
def test_wrong_parameters_are_named(service: ApiFixture, params: dict[str, Any]) -> None:
    answer = service.client.get("/v1/usage", params=params)
    assert (answer.status_code, next(iter(params)) in answer.text) == (422, True)


@both_databases
def test_what_ones_own_jobs_take_is_told_the_largest_first(service: ApiFixture) -> None:
    service.act_as("ada")
    small, large, nothing = (service.submit(name=name)["id"] for name in ("small", "large", "nothing"))
    claims = {job_id: service.start(job_id, device=f"cpu-{place}") for place, job_id in enumerate((small, large))}
    service.record(claims[small], checkpoints=[checkpoint("a", step=1), checkpoint("b", step=2)])
    service.record(claims[large], artifacts=[NewArtifact("./plot.png", 5, "1" * 64)])
    (worker,) = service.get("/v1/workers")["data"]
    with service.database.write() as session:
        folders.replace_sizes(session, worker["id"], {large: 3000, nothing: 0})
        folders.replace_sizes(session, "wrk_gone", {"job_gone": 7})
    told = service.get("/v1/usage/disk")
    assert (told["stored_bytes"], told["folder_bytes"], told["count"]) == (7, 3000, 2)
    assert [(job["name"], job["job_id"], job["stored_bytes"], job["state"]) for job in told["jobs"]] == [
        ("large", large, 5, "running"),
        ("small", small, 2, "running"),
    ]
    (folder,) = told["jobs"][0]["folders"]
    assert (folder["size"], folder["host"]) == (3000, worker["name"])
    first = service.get("/v1/usage/disk", limit=1)
    assert (first["count"], [job["name"] for job in first["jobs"]]) == (2, ["large"])
    service.act_as("bob")
    assert service.get("/v1/usage/disk") == {"stored_bytes": 0, "folder_bytes": 0, "count": 0, "jobs": []}


def test_a_folder_that_is_gone_is_told_no_more(service: ApiFixture) -> None:
    service.act_as("ada")
    job_id = service.submit()["id"]
    service.start(job_id)
    worker_id = service.get("/v1/workers")["data"][0]["id"]
    with service.database.write() as session:
        folders.replace_sizes(session, worker_id, {job_id: 3000})
        folders.replace_sizes(session, "wrk_other", {job_id: 50})
    assert service.get("/v1/usage/disk")["folder_bytes"] == 3050
    with service.database.write() as session:
        folders.replace_sizes(session, worker_id, {})
    assert service.get("/v1/usage/disk")["folder_bytes"] == 50
