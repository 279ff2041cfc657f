"""Ids, names and short ids that name a job or a checkpoint, and the next free name, by both clients."""

import json
from urllib.parse import quote

import pytest

from tests.approved import Approved
from tests.torchyard.client.answers import JOB, NOW, job, page
from tests.torchyard.client.fake_server import Answer, FakeServer, problem
from tests.torchyard.client.test_sweeps import sweep
from torchyard.client import Client
from torchyard.contract.errors import Conflict, NotFound

FIRST, SECOND = f"job_0192aa{'0' * 26}", f"job_0192ab{'0' * 26}"


def serve_jobs(server: FakeServer, *ids: str) -> None:
    """Answers that no job has the asked name, and then the jobs with these ids."""
    server.on("/v1/jobs", page([]), page([job(id=id) for id in ids]))
    for id in ids:
        server.on(f"/v1/jobs/{id}", job(id=id))


def test_the_beginning_of_one_id_names_its_job(server: FakeServer, client: Client) -> None:
    other = job(id="job_7", name="job_0192ab")  # the search finds names, too
    server.on("/v1/jobs", page([]), page([job(id=FIRST), other], more=True, next="c"), page([job(id=SECOND)]))
    server.on(f"/v1/jobs/{SECOND}", job(id=SECOND))
    assert client.get("job_0192ab").id == SECOND
    assert [request.query for request in server.requests[1:-1]] == [
        {"name": ["job_0192ab"], "limit": ["1"]},
        {"q": ["0192ab"]},
        {"q": ["0192ab"], "after": ["c"]},
    ]


def test_a_beginning_of_several_ids_names_no_job_and_lists_them(
    server: FakeServer, client: Client, approved: Approved
) -> None:
    serve_jobs(server, FIRST, SECOND)
    with pytest.raises(Conflict) as caught:
        client.get("job_0192")
    assert str(caught.value) == approved("message")
    assert f"{FIRST}  a, queued" in caught.value.message and SECOND in caught.value.message


def test_of_many_such_ids_few_are_fetched_and_listed(server: FakeServer, client: Client) -> None:
    ids = [f"job_0192{number:028x}" for number in range(8)]
    server.on("/v1/jobs", page([]), page([job(id=id) for id in ids], more=True, next="c"))
    with pytest.raises(Conflict) as caught:
        client.get("job_0192")
    assert caught.value.message.splitlines()[-1] == "  …"
    assert "after" not in server.requests[-1].query


def test_a_name_comes_before_the_beginning_of_an_id(server: FakeServer, client: Client) -> None:
    named = job(id=SECOND, name="job_0192aa")
    server.on("/v1/jobs", page([named]))
    server.on(f"/v1/jobs/{SECOND}", named)
    assert client.get("job_0192aa").id == SECOND


ENDS = f"job_0192{'0' * 22}3f09c1", f"job_0192{'0' * 22}3f09c2"


@pytest.mark.parametrize("ref", ["job_…3f09c1", "job_...3f09c1", "…3f09c1", "3f09c1", "job_3f09c1", "09c1"])
def test_the_end_of_one_id_names_its_job(server: FakeServer, client: Client, ref: str) -> None:
    server.on("/v1/jobs", page([]), page([job(id=id) for id in ENDS]))
    server.on(f"/v1/jobs/{ENDS[0]}", job(id=ENDS[0]))
    if ref.startswith("job_"):
        server.on(f"/v1/jobs/{quote(ref)}", problem("not_found", 404))
    assert client.get(ref).id == ENDS[0]
    assert server.requests[-2].query == {"q": [ref[-6:].lstrip("…")]}


def test_the_end_of_several_ids_names_no_job_and_lists_them(server: FakeServer, client: Client) -> None:
    serve_jobs(server, *ENDS, f"job_{'3f09c1'.zfill(32)}")
    with pytest.raises(Conflict, match=f"3f09c1 matches several ids(.|\n)*{ENDS[0]}  a, queued"):
        client.get("3f09c1")


def test_after_may_have_a_short_id_that_is_no_name(server: FakeServer, client: Client) -> None:
    server.on("/v1/jobs", page([]), page([job(id=ENDS[0])]), Answer(job(), 201))
    client.submit({"trainer": "script", "after": [{"job": "…3f09c1", "on": "finished"}, {"job": "prepare"}]})
    assert json.loads(server.requests[-1].body)["after"] == [{"job": ENDS[0], "on": "finished"}, {"job": "prepare"}]


@pytest.mark.parametrize("ref", ["job_", "job_019", "2aa", "job_0192zz", "…job_0192ab", "other"])
def test_what_is_too_short_or_no_id_is_no_short_id(
    server: FakeServer, client: Client, ref: str, approved: Approved
) -> None:
    server.on("/v1/jobs", page([]))
    with pytest.raises(NotFound) as raised:
        client.get(ref)
    assert str(raised.value) == approved.of_row("message")
    assert not any("q" in request.query for request in server.requests)


def test_an_archived_job_is_found_where_no_other_is_meant(server: FakeServer, client: Client) -> None:
    server.on("/v1/jobs", page([]), page([]), page([job(id=SECOND, name="job_0192aa")]))
    server.on(f"/v1/jobs/{SECOND}", job(id=SECOND, name="job_0192aa"))
    assert client.get("job_0192aa").id == SECOND
    assert [request.query for request in server.requests[1:-1]] == [
        {"name": ["job_0192aa"], "limit": ["1"]},
        {"q": ["0192aa"]},
        {"name": ["job_0192aa"], "archived": ["true"], "limit": ["1"]},
    ]


def test_submit_get_retry_and_run_return_the_same_kind_of_job(server: FakeServer, client: Client) -> None:
    server.on("/v1/jobs", Answer(job(), 201))
    server.on(JOB, job(state="succeeded"))
    server.on(f"{JOB}/retry", Answer(job(retry_of="job_1"), 201))
    for made in (client.submit({"trainer": "script"}), client.get("job_1"), client.jobs.retry("job_1")):
        assert made.view.id == "job_1"
        assert made.wait().state == "succeeded"


def test_without_a_ref_the_best_checkpoint_is_taken_and_else_the_latest(
    server: FakeServer, client: Client, approved: Approved
) -> None:
    view = {"id": "ckpt_1", "epoch": 3, "step": 9, "attempt": 1, "metrics": {}, "files": [], "aliases": []}
    view |= {"size": 1, "sha256": "0" * 64, "created_at": "2026-01-02T03:04:05Z"}
    server.on(f"{JOB}/checkpoints/latest", {**view, "aliases": ["latest"]})
    assert client.jobs.checkpoint("job_1").aliases == ["latest"]
    server.on(f"{JOB}/checkpoints/best", {**view, "aliases": ["best"]})
    assert client.jobs.checkpoint("job_1").aliases == ["best"]
    ids = [f"ckpt_0192a{digit}" for digit in "01"]
    server.on(f"{JOB}/checkpoints", page([{**view, "id": id} for id in ids]))
    server.on(f"{JOB}/checkpoints/ckpt_0192a1", view)
    server.on(f"{JOB}/checkpoints/ckpt_0192a1", {**view, "id": "ckpt_0192a1"})
    assert client.jobs.checkpoint("job_1", "ckpt_0192a1").id == "ckpt_0192a1"
    with pytest.raises(Conflict) as raised:
        client.jobs.checkpoint("job_1", "ckpt_0192a")
    assert str(raised.value) == approved("message")
    with pytest.raises(NotFound):
        client.jobs.checkpoint("job_1", "epoch-4")


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([[]], "net"),
        ([["net"], [], []], "net-2"),
        ([["net"], ["net-x", "my-net-9", "net-3", "net-12"], []], "net-4"),
        ([["net"], ["net-3"], ["net-4"], []], "net-5"),
    ],
)
def test_a_free_name_follows_that_of_the_newest_job(
    server: FakeServer, client: Client, answers: list[list[str]], expected: str
) -> None:
    server.on("/v1/jobs", *[page([job(name=name) for name in names]) for names in answers], Answer(job(), 201))
    client.submit({"name": "net"}, numbered=True)
    assert json.loads(server.requests[-1].body) == {"name": expected}
    assert len(server.requests) == len(answers) + 1


def test_a_free_name_is_never_too_long(server: FakeServer, client: Client) -> None:
    server.on("/v1/jobs", page([job()]), page([]), page([]), Answer(job(), 201))
    client.submit({"name": "n" * 100}, numbered=True)
    assert json.loads(server.requests[-1].body) == {"name": f"{'n' * 90}-2"}


CHECKPOINT = f"ckpt_{'0' * 32}"


def exact(server: FakeServer, client: Client, text: str) -> str:
    """Returns the `init_from` that a submission with this one sends."""
    server.on("/v1/jobs/batch", {"data": []})
    client.jobs.submit_batch([{"init_from": text}])
    return json.loads(server.requests[-1].body)["jobs"][0]["init_from"]


def test_a_spec_may_name_a_job_in_init_from(server: FakeServer, client: Client, approved: Approved) -> None:
    server.on("/v1/jobs", page([job(id=FIRST, name="digits")]), Answer(job(), 201), page([]))
    server.on(f"/v1/jobs/{FIRST}", job(id=FIRST))
    server.on("/v1/jobs/batch", {"data": []})
    client.submit({"trainer": "script", "init_from": "digits/best"})
    assert json.loads(server.requests[-1].body) == {"trainer": "script", "init_from": f"{FIRST}/best"}
    named = (f"{FIRST}/epoch-3", "model:cracks@3", "${jobs.prepare.best}")
    client.jobs.submit_batch([{"init_from": text} for text in named])
    assert len(server.requests) == 4, "nothing was asked for what is exact"
    with pytest.raises(NotFound) as raised:
        exact(server, client, "nothing/latest")
    assert str(raised.value) == approved("message")


def test_a_spec_may_name_data_in_its_mounts(server: FakeServer, client: Client) -> None:
    have = {"sha256": "12" * 32, "size": 10, "files": 1, "state": "complete", "received": 10, "created_at": NOW}
    server.on("/v1/bundles", page([have | {"name": "mnist"}]), page([]))
    server.on("/v1/jobs", Answer(job(), 201))
    mounts = {"data/mnist": "data:mnist", "again": "data:mnist", "more": "file:///data"}
    spec = {"trainer": "script", "config": {"entrypoint": "train.py", "mounts": mounts}}
    client.submit(spec)
    url = f"bundle:sha256:{'12' * 32}"
    assert json.loads(server.requests[-1].body)["config"] == {
        "entrypoint": "train.py",
        "mounts": {"data/mnist": url, "again": url, "more": "file:///data"},
    }
    assert mounts["again"] == "data:mnist", "what was given stays"
    assert len(server.requests) == 2, "one name is looked up once"
    with pytest.raises(NotFound, match="no data named mnist"):
        client.submit(spec)


def test_the_best_of_a_sweep_is_named_where_no_job_has_its_name(
    server: FakeServer, client: Client, approved: Approved
) -> None:
    first, second = (f"swp_0192a{digit}{'0' * 27}" for digit in "01")
    sweeps = [sweep(id=first, name="lrs"), sweep(id=second, name="lrs")]
    server.on("/v1/jobs", page([]))
    server.on("/v1/sweeps", page(sweeps))
    assert exact(server, client, "lrs/best") == f"{first}/best"
    assert server.requests[-2].query["name"] == ["lrs"]
    assert exact(server, client, "swp_0192a1/best") == f"{second}/best"
    with pytest.raises(NotFound) as raised:
        exact(server, client, "lrs/latest")
    assert str(raised.value) == approved("message")
    server.on("/v1/sweeps", page([]))
    with pytest.raises(NotFound) as raised:
        exact(server, client, "lrs/best")
    assert str(raised.value) == approved("there sweep id")
    server.on("/v1/jobs", page([job(id=FIRST, name="lrs")]))
    server.on(f"/v1/jobs/{FIRST}", job(id=FIRST))
    assert exact(server, client, "lrs/best") == f"{FIRST}/best", "a job goes before a sweep"


def test_the_beginning_of_a_checkpoints_id_is_found_for_init_from(server: FakeServer, client: Client) -> None:
    whole = {"id": CHECKPOINT, "epoch": 3, "step": 9, "attempt": 1, "metrics": {}, "files": [], "aliases": []}
    whole |= {"size": 1, "sha256": "0" * 64, "created_at": "2026-01-02T03:04:05Z"}
    server.on(f"/v1/jobs/{FIRST}", job(id=FIRST))
    server.on(f"/v1/jobs/{FIRST}/checkpoints", page([whole]))
    server.on(f"/v1/jobs/{FIRST}/checkpoints/{CHECKPOINT}", whole)
    assert exact(server, client, f"{FIRST}/ckpt_0000") == f"{FIRST}/{CHECKPOINT}"
