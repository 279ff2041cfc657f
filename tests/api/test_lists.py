"""Lists of jobs: searched, sorted, counted, and in pages of every order."""

from typing import Any, get_args

import pytest

from tests.api.service import ApiFixture, both_databases
from tests.rows import each_row
from torchyard.contract.jobs.filters import JobSort
from torchyard.contract.states import EndReason
from torchyard.contract.team.roles import Role


def names(page: dict[str, Any]) -> list[str]:
    return [job["name"] for job in page["data"]]


def pages(service: ApiFixture, **params: Any) -> list[str]:
    """Returns the names of all pages of two jobs."""
    shown: list[str] = []
    page = service.get("/v1/jobs", limit=2, **params)
    while True:
        shown += names(page)
        if not page["has_more"]:
            assert page["next"] is None
            return shown
        page = service.get("/v1/jobs", limit=2, after=page["next"], **params)


@pytest.fixture
def jobs(service: ApiFixture) -> dict[str, dict[str, Any]]:
    """Five jobs by name, from the oldest: `b` has succeeded, `d` runs, `a` is cancelled, `c` and `e` wait."""
    found = {
        name: service.submit(name=name, priority=priority)
        for name, priority in zip("bdace", (0, 5, 0, -5, 5), strict=True)
    }
    service.end(service.start(found["b"]["id"]), reason=EndReason.COMPLETED)
    service.start(found["d"]["id"], device="cpu-1")
    assert service.client.post(f"/v1/jobs/{found['a']['id']}/cancel").status_code == 202
    return found


@both_databases
def test_each_order_is_kept_over_pages_and_a_minus_reverses_it(
    service: ApiFixture, jobs: dict[str, dict[str, Any]]
) -> None:
    expected = {
        "created": "ecadb",
        "name": "abcde",
        "owner": "ecadb",
        "state": "aecdb",  # cancelled, queued, running, succeeded
        "priority": "edabc",
        "started": "dbeca",
        "finished": "abecd",
    }
    for sort, order in expected.items():
        assert "".join(names(service.get("/v1/jobs", sort=sort))) == order, sort
        assert "".join(pages(service, sort=sort)) == order, sort
        assert "".join(pages(service, sort=f"-{sort}")) == order[::-1], sort
    assert {*expected} == {sort for sort in get_args(JobSort) if not sort.startswith("-")}


def test_a_job_that_comes_meanwhile_is_not_on_a_later_page_and_none_is_missed(
    service: ApiFixture, jobs: dict[str, dict[str, Any]]
) -> None:
    first = service.get("/v1/jobs", sort="name", limit=3)
    service.submit(name="aa")
    service.client.delete(f"/v1/jobs/{jobs['c']['id']}")
    assert names(first) + names(service.get("/v1/jobs", sort="name", after=first["next"])) == [*"abcde"]


@each_row("sort", ["size", "", "--name", "name ", "NAME", "-"])
def test_an_unknown_order_is_refused(service: ApiFixture, sort: str) -> None:
    answer = service.client.get("/v1/jobs", params={"sort": sort})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "sort")


def test_a_cursor_of_another_order_is_refused(service: ApiFixture, jobs: dict[str, dict[str, Any]]) -> None:
    cursors = {sort: service.get("/v1/jobs", sort=sort, limit=1)["next"] for sort in get_args(JobSort)}
    sorts = [*cursors]
    for place, sort in enumerate(sorts):
        # Its own, the same backwards, and another one.
        for of in (sort, sort.removeprefix("-") if sort.startswith("-") else f"-{sort}", sorts[place - 1]):
            answer = service.client.get("/v1/jobs", params={"sort": sort, "after": cursors[of]})
            assert answer.status_code == (200 if of == sort else 422), (sort, of)
            assert of == sort or answer.json()["code"] == "invalid_cursor"


@each_row(
    "cursor",
    [
        "priority:high:job_" + "0" * 32,
        "priority::job_" + "0" * 32,
        "priority:9999999999999999999:job_" + "0" * 32,
        "priority:5:job_x",
        "priority:5",
        "priority:\n5:job_" + "0" * 32,
        "job_" + "0" * 32 + "\n",
        "::",
        "",
    ],
)
def test_a_malformed_cursor_is_refused(service: ApiFixture, cursor: str) -> None:
    answer = service.client.get("/v1/jobs", params={"sort": "priority", "after": cursor})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_cursor")


@both_databases
def test_a_search_finds_name_id_owner_and_label_values_without_regard_to_case(service: ApiFixture) -> None:
    first = service.submit(name="Cracks-A", labels={"team": "Straße 7", "note": "50%_off"})
    second = service.submit(name="digits")
    service.act_as("zoe")
    service.submit(name="zoes", visibility="team")
    service.act_as("admin")
    found = {
        q: names(service.get("/v1/jobs", q=q))
        for q in (
            "cracks",
            "RACKS-a",
            "STRASSE",
            "straße",
            "zo",
            "team",
            "50%",
            "5%f",
            "0%_o",
            "%",
            "_",
            "gits",
            "zzz",
            "\\",
        )
    }
    cracks = ["Cracks-A"]
    assert found == {
        "cracks": cracks, "RACKS-a": cracks, "STRASSE": cracks, "straße": cracks, "zo": ["zoes"], "team": [],
        "50%": cracks, "5%f": [], "0%_o": cracks, "%": cracks, "_": ["zoes", "digits", "Cracks-A"], "gits": ["digits"],
        "zzz": [], "\\": [],
    }  # fmt: skip
    assert names(service.get("/v1/jobs", q=first["id"][4:].upper())) == cracks
    assert names(service.get("/v1/jobs", q="")) == ["zoes", "digits", "Cracks-A"]
    path = f"/v1/jobs/{second['id']}"
    assert service.client.patch(path, json={"name": "renamed", "labels": {"team": "bridges"}}).status_code == 200
    assert names(service.get("/v1/jobs", q="digits")) == []
    assert names(service.get("/v1/jobs", q="bridge")) == names(service.get("/v1/jobs", q="NAMED")) == ["renamed"]


@each_row("q", ["a\0b", "x" * 201, "y" * 6000, "two\nlines"])
def test_an_absurd_search_is_refused(service: ApiFixture, q: str) -> None:
    answer = service.client.get("/v1/jobs", params={"q": q})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "q")


def test_a_search_that_makes_the_url_too_long_is_refused(service: ApiFixture) -> None:
    answer = service.client.get("/v1/jobs", params={"q": "x" * 10_000})
    assert answer.status_code in {414, 422}  # 414 by the server's own connections


@both_databases
def test_counts_are_of_all_states_and_of_the_rest_of_the_filter(
    service: ApiFixture, jobs: dict[str, dict[str, Any]]
) -> None:
    plain = service.get("/v1/jobs", state="queued")
    assert (plain["counts"], plain["total"]) == (None, None)
    page = service.get("/v1/jobs", state="queued", counts=True, limit=1)
    assert page["counts"] == {"queued": 2, "running": 1, "succeeded": 1, "cancelled": 1}
    assert (page["total"], names(page)) == (5, ["e"])
    page = service.get("/v1/jobs", name="d", state=["failed"], counts=True)
    assert (page["data"], page["counts"], page["total"]) == ([], {"running": 1}, 1)
    page = service.get("/v1/jobs", q="none such", counts=True)
    assert (page["data"], page["counts"], page["total"]) == ([], {}, 0)


@both_databases
def test_search_and_counts_show_nothing_of_jobs_that_the_caller_may_not_see(service: ApiFixture) -> None:
    service.act_as("alice")
    hidden = service.submit(name="hidden-project", labels={"for": "secret-customer"})
    service.act_as("bob")
    for params in ({"q": "hidden"}, {"q": "alice"}, {"q": hidden["id"]}, {}):
        page = service.get("/v1/jobs", counts=True, **params)
        assert (page["data"], page["counts"], page["total"]) == ([], {}, 0)
    # An operator lists the job without its labels, so they must not find it.
    service.act_as("carol", Role.OPERATOR)
    assert names(service.get("/v1/jobs", q="HIDDEN")) == names(service.get("/v1/jobs", q="Alice")) == ["hidden-project"]
    page = service.get("/v1/jobs", q="secret-customer", counts=True)
    assert (page["data"], page["counts"]) == ([], {})


def test_a_summary_and_the_job_show_the_trainer_and_the_place_in_the_timeline(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    claim = service.start(job_id)
    (row,), job = service.get("/v1/jobs")["data"], service.get(f"/v1/jobs/{job_id}")
    assert row["trainer"] == job["trainer"] == "image-classification"
    last = service.get(f"/v1/jobs/{job_id}/events")["data"][-1]["seq"]
    assert row["position"] == job["position"] == last
    service.end(claim, reason=EndReason.COMPLETED)
    stream = service.client.get(f"/v1/jobs/{job_id}/stream", headers={"Last-Event-ID": str(job["position"])}).text
    seqs = [event["seq"] for event in service.get(f"/v1/jobs/{job_id}/events", after=job["position"])["data"]]
    assert seqs
    assert [line for line in stream.splitlines() if line.startswith("id: ")][: len(seqs)] == [
        f"id: {seq}" for seq in seqs
    ]
