"""Quotas over REST: what is set, what holds, and what is answered over them."""

from typing import Any

from tests.api.service import SPEC, ApiFixture, both_databases
from tests.approved import Approved
from tests.rows import each_row
from torchyard.contract.team.roles import Role


def effective(service: ApiFixture, name: str) -> dict[str, int | None]:
    return {use["resource"]: use["limit"] for use in service.get(f"/v1/quotas/users/{name}")["uses"]}


@both_databases
def test_what_is_left_out_stays_and_null_is_unlimited(service: ApiFixture) -> None:
    service.act_as("alice")
    service.act_as("admin")
    service.client.put("/v1/quotas/roles/member", json={"devices": 4, "queued": 100})
    service.client.put("/v1/quotas/users/alice", json={"devices": 8, "priority": 5})
    service.client.put("/v1/quotas/users/alice", json={"queued": None})
    (*_, own) = service.get("/v1/quotas")["data"]
    assert own["limits"] == {"devices": 8, "priority": 5, "queued": None}
    nothing: dict[str, int | None] = dict.fromkeys(("devices", "running", "queued", "priority", "stored_bytes"))
    nothing["share"] = 100
    assert effective(service, "alice") == nothing | {"devices": 8, "priority": 5}
    service.client.delete("/v1/quotas/users/alice", params={"resource": ["queued", "priority"]})
    assert effective(service, "alice") == nothing | {"devices": 8, "queued": 100}
    listed = service.get("/v1/quotas")["data"]
    assert [(row["kind"], row["name"], row["limits"]) for row in listed] == [
        ("role", "member", {"devices": 4, "queued": 100}),
        ("user", "alice", {"devices": 8}),
    ]
    service.client.delete("/v1/quotas/users/alice")
    service.client.delete("/v1/quotas/roles/member")
    assert service.get("/v1/quotas")["data"] == []
    assert service.client.delete("/v1/quotas/users/nobody").status_code == 404


def test_a_share_is_100_until_another_is_set_for_the_user_or_the_role(service: ApiFixture) -> None:
    service.act_as("alice")
    service.act_as("admin")
    service.client.put("/v1/quotas/roles/member", json={"share": 50})
    assert effective(service, "alice")["share"] == 50
    service.client.put("/v1/quotas/users/alice", json={"share": 10_000})
    assert effective(service, "alice")["share"] == 10_000
    service.client.delete("/v1/quotas/users/alice", params={"resource": "share"})
    service.client.delete("/v1/quotas/roles/member")
    assert effective(service, "alice")["share"] == 100
    service.submit()


def test_a_user_sees_what_they_use(service: ApiFixture) -> None:
    service.act_as("alice")
    service.start(service.submit()["id"])
    service.submit()
    used = {use["resource"]: use["used"] for use in service.get("/v1/quotas/users/alice")["uses"]}
    assert used == {"devices": 1, "running": 1, "queued": 1, "priority": None, "stored_bytes": 0, "share": None}
    assert service.client.get("/v1/quotas/users/admin").status_code == 403


def test_a_submission_over_the_quota_is_refused_and_a_repeated_one_is_answered(
    service: ApiFixture, approved: Approved
) -> None:
    service.act_as("alice")
    service.act_as("admin")
    service.client.put("/v1/quotas/users/alice", json={"queued": 1, "devices": 2})
    service.act_as("alice")
    once = {"Idempotency-Key": "once"}
    first = service.client.post("/v1/jobs", json=SPEC, headers=once)
    refused = service.client.post("/v1/jobs", json=SPEC)
    assert (refused.status_code, refused.json()["code"]) == (403, "quota_exceeded")
    assert refused.json()["detail"] == approved("detail")
    assert service.client.post("/v1/jobs", json=SPEC, headers=once).json()["id"] == first.json()["id"]
    large = service.client.post("/v1/jobs", json={**SPEC, "resources": {"devices_per_node": 3}})
    assert large.json()["detail"] == approved("may hold devices")


@each_row(
    ("path", "body", "status"),
    [
        ("/v1/quotas/users/nobody", {"devices": 1}, 404),
        ("/v1/quotas/roles/king", {"devices": 1}, 422),
        ("/v1/quotas/users/admin", {"devices": -1}, 422),
        ("/v1/quotas/users/admin", {"devices": "4"}, 422),
        ("/v1/quotas/users/admin", {"gpus": 4}, 422),
        ("/v1/quotas/users/admin", {"priority": 101}, 422),
        ("/v1/quotas/users/admin", {"share": 0}, 422),
        ("/v1/quotas/users/admin", {"share": 10_001}, 422),
        ("/v1/quotas/users/admin", {"share": 1.5}, 422),
        ("/v1/quotas/users/admin", {"share": None}, 422),
        ("/v1/quotas/users/admin", [], 422),
    ],
)
def test_a_quota_that_makes_no_sense_is_refused(service: ApiFixture, path: str, body: Any, status: int) -> None:
    assert service.client.put(path, json=body).status_code == status
    assert service.get("/v1/quotas")["data"] == []
    assert service.client.delete("/v1/quotas/users/nobody").status_code == 404


def test_the_administrators_limits_are_as_anyones(service: ApiFixture) -> None:
    service.client.put(f"/v1/quotas/roles/{Role.ADMIN}", json={"queued": 0})
    assert service.client.post("/v1/jobs", json=SPEC).status_code == 403
