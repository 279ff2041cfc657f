"""Lines of a log before a line, those that match, and all as a file."""

from datetime import datetime
from typing import Any

import pytest

from api.routes import logs as log_routes
from store.output import log_search
from store.output.facts import NewLines
from tests.api.service import ApiFixture
from tests.rows import each_row
from torchyard.contract.states import EndReason

TEXTS = ["epoch 1", "\x1b[31mCUDA OOM\x1b[0m", "a\rb", "", "ü <script>", "oom"]


@pytest.fixture
def job_id(service: ApiFixture) -> str:
    """A job with six lines of ranks 0, 0, 1, 1, the launcher and 0 (stderr), and two of a second attempt."""
    job_id = str(service.submit(name="my-run")["id"])
    claim = service.start(job_id)
    parts = [NewLines(0, "stdout", TEXTS[:2]), NewLines(1, "stdout", TEXTS[2:4]), NewLines(None, "stdout", TEXTS[4:5])]
    service.record(claim, lines=[*parts, NewLines(0, "stderr", TEXTS[5:])])
    service.end(claim, reason=EndReason.PREEMPTED)
    service.record(service.start(job_id), lines=[NewLines(0, "stdout", ["again", "OOM"])])
    return job_id


def lines(page: dict[str, Any]) -> list[int]:
    return [line["line"] for line in page["data"]]


@each_row(
    ("params", "expected", "has_more"),
    [
        ({"before": 5}, [1, 2, 3, 4], False),
        ({"before": 5, "limit": 2}, [3, 4], True),
        ({"before": 9**9, "limit": 3}, [6, 7, 8], True),
        ({"before": 1}, [], False),
        ({"before": 8, "rank": 0, "limit": 2}, [6, 7], True),
        ({"before": 8, "after": 5}, [6, 7], False),
        ({"before": 8, "after": 3, "limit": 2}, [6, 7], True),
        ({"attempt": 2}, [7, 8], False),
        ({"stream": "stderr"}, [6], False),
        ({"attempt": 1, "tail": 2}, [5, 6], False),
        ({"launcher": True}, [5], False),
    ],
)
def test_lines_before_a_line_are_the_newest_of_them(
    service: ApiFixture, job_id: str, params: dict[str, Any], expected: list[int], has_more: bool
) -> None:
    page = service.get(f"/v1/jobs/{job_id}/logs", **params)
    assert (lines(page), page["has_more"], page["next"], page["total"]) == (expected, has_more, None, 8)


def test_a_jump_reads_only_the_lines_around_it(service: ApiFixture) -> None:
    job_id = str(service.submit()["id"])
    claim = service.start(job_id)
    for first in range(1, 10_001, 1000):
        service.record(claim, lines=[NewLines(0, "stdout", [str(number) for number in range(first, first + 1000)])])
    path = f"/v1/jobs/{job_id}/logs"
    around = lines(service.get(path, before=9000, limit=5)) + lines(service.get(path, after="8999", limit=5))
    assert around == list(range(8995, 9005))


def test_a_search_answers_lines_with_the_places_of_the_matches(service: ApiFixture, job_id: str) -> None:
    path = f"/v1/jobs/{job_id}/logs/search"
    found = service.get(path, q="oom")
    assert [(line["line"], line["spans"]) for line in found["data"]] == [(2, [[10, 13]]), (6, [[0, 3]]), (8, [[0, 3]])]
    assert found["data"][0]["text"] == TEXTS[1]
    rest = {key: found[key] for key in ("matches", "first_line", "last_line", "complete", "next", "has_more")}
    assert rest == {
        "matches": 3,
        "first_line": 1,
        "last_line": 8,
        "complete": True,
        "next": None,
        "has_more": False,
    }
    assert lines(service.get(path, q="oom", case=True)) == [6]
    assert lines(service.get(path, q="^o+m$", regex=True)) == [6, 8]
    assert lines(service.get(path, q="oom", attempt=1, rank=0)) == [2, 6]
    assert lines(service.get(path, q="oom", after="2", before=8)) == [6]
    assert lines(service.get(path, q="^o+m$")) == []


def test_a_search_goes_on_where_it_stopped(service: ApiFixture, job_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"/v1/jobs/{job_id}/logs/search"
    first = service.get(path, q="oom", limit=1)
    assert (lines(first), first["matches"], first["complete"], first["next"]) == ([2], 3, True, "2")
    monkeypatch.setattr(log_search, "MOST_CHUNKS", 2)
    part = service.get(path, q="again")
    assert (part["data"], part["complete"], part["last_line"], part["next"]) == ([], False, 4, "4")
    part = service.get(path, q="again", after=part["next"])
    assert (part["first_line"], part["last_line"], part["next"]) == (5, 6, "6")
    assert lines(service.get(path, q="again", after=part["next"])) == [7]


@each_row("params", [{}, {"q": ""}, {"q": "x" * 501}, {"q": "(", "regex": True}, {"q": "x", "before": 0}])
def test_a_search_for_nothing_is_refused(service: ApiFixture, job_id: str, params: dict[str, Any]) -> None:
    answer = service.client.get(f"/v1/jobs/{job_id}/logs/search", params=params)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
    assert answer.json()["errors"]


def test_a_log_is_sent_as_a_file(service: ApiFixture, job_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_routes, "PART_CHARACTERS", 5)
    path = f"/v1/jobs/{job_id}/logs/download"
    answer = service.client.get(path)
    assert answer.content.decode() == "".join(f"{text}\n" for text in [*TEXTS, "again", "OOM"])
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["content-disposition"] == 'attachment; filename="my-run-logs.txt"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert service.client.get(path, params={"rank": 1}).text == "a\rb\n\n"
    assert service.client.get(path, params={"attempt": 2}).text == "again\nOOM\n"
    stamped = service.client.get(path, params={"stream": "stderr", "timestamps": True}).text
    time, _, text = stamped.partition(" ")
    assert (text, datetime.fromisoformat(time).tzname()) == ("oom\n", "UTC")


def test_a_job_without_output_has_an_empty_file(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    assert service.client.get(f"/v1/jobs/{job_id}/logs/download").content == b""
    found = service.get(f"/v1/jobs/{job_id}/logs/search", q="x")
    assert (found["matches"], found["first_line"], found["last_line"], found["complete"]) == (0, 1, 0, True)


def test_logs_of_other_users_are_not_found(service: ApiFixture, job_id: str) -> None:
    service.act_as("eve")
    for path in ("logs", "logs/search?q=x", "logs/download"):
        assert service.client.get(f"/v1/jobs/{job_id}/{path}").status_code == 404
