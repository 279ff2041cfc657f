"""Lists of jobs that users keep under a name."""

from typing import Any

from tests.api.service import ApiFixture, both_databases


def save(service: ApiFixture, name: str, query: str = "q=lr", **more: Any) -> Any:
    return service.client.put("/v1/saved-views", json={"name": name, "query": query, **more})


def listed(service: ApiFixture) -> list[tuple[str, str, str]]:
    return [(view["owner"], view["name"], view["query"]) for view in service.get("/v1/saved-views")["data"]]


def remove(service: ApiFixture, name: str, **more: str) -> int:
    return service.client.delete("/v1/saved-views", params={"name": name, **more}).status_code


@both_databases
def test_a_view_is_kept_in_place_of_one_of_its_name_and_for_others_only_where_the_team_has_it(
    service: ApiFixture,
) -> None:
    service.act_as("alice")
    assert save(service, "lr / bs ✓", "q=old").json()["visibility"] == "private"
    assert save(service, "lr / bs ✓", "q=new").status_code == 200
    assert save(service, "best", "sort=name", visibility="team").status_code == 200
    assert listed(service) == [("alice", "best", "sort=name"), ("alice", "lr / bs ✓", "q=new")]
    service.act_as("bob")
    assert save(service, "zeta").status_code == 200
    assert listed(service) == [("bob", "zeta", "q=lr"), ("alice", "best", "sort=name")]  # one's own first
    assert [remove(service, "best", owner="alice"), remove(service, "lr / bs ✓", owner="alice")] == [403, 404]
    service.act_as("alice")
    assert save(service, "best", "sort=name").json()["visibility"] == "private"
    service.act_as("bob")
    assert listed(service) == [("bob", "zeta", "q=lr")]
    service.act_as("admin")
    assert [remove(service, "best", owner="alice"), remove(service, "best", owner="alice")] == [204, 404]
    assert [entry["object"] for entry in service.get("/v1/audit", action="view.delete")["data"]] == ["alice/best"]


def test_a_user_has_at_most_100_views_and_what_is_too_long_is_refused(service: ApiFixture) -> None:
    assert all(save(service, f"view {number}").status_code == 200 for number in range(100))
    refused = save(service, "one more")
    assert (refused.status_code, refused.json()["detail"]) == (
        409,
        "admin has 100 views; the maximum is 100: delete some first",
    )
    assert save(service, "view 7", "q=" + "x" * 7_998).status_code == 200
    assert save(service, "view 7", "q=" + "x" * 8_000).status_code == 422
    assert save(service, "a\nb").status_code == 422
    assert save(service, "").status_code == 422
    assert remove(service, "none") == 404
