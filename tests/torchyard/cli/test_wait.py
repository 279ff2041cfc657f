"""`torchyard wait`: what it waits for, and what its exit code says."""

import json

import pytest

from tests.approved import Approved
from tests.torchyard.cli.answered import run
from tests.torchyard.client.answers import job
from tests.torchyard.client.fake_server import FakeServer


def _serve(server: FakeServer, **states: list[str]) -> None:
    """Makes jobs that are in these states one after the other."""
    for name, through in states.items():
        views = [job(id=name, name=name, state=state, version=place) for place, state in enumerate(through, 1)]
        server.on(f"/v1/jobs/{name}", *views)


@pytest.mark.parametrize(("end", "code"), [("succeeded", 0), ("failed", 1), ("cancelled", 3)])
@pytest.mark.parametrize("event", ["ended", "succeeded", "running"])
def test_the_exit_code_says_how_a_job_has_ended(server: FakeServer, end: str, code: int, event: str) -> None:
    _serve(server, job_1=["queued", "starting", end])
    done = run(server, "wait", "job_1", "--for", event)
    assert (done.returncode, done.stdout) == (code, f"job_1  {end}\n")


@pytest.mark.parametrize(
    ("ends", "code"),
    [(("succeeded", "succeeded"), 0), (("cancelled", "failed"), 1), (("succeeded", "cancelled"), 3)],
)
def test_of_several_jobs_the_worst_end_counts(server: FakeServer, ends: tuple[str, str], code: int) -> None:
    _serve(server, job_1=["running", ends[0]], job_2=["running", "running", ends[1]])
    done = run(server, "wait", "job_1", "job_2")
    assert (done.returncode, done.stdout) == (code, f"job_1  {ends[0]}\njob_2  {ends[1]}\n")


def test_waiting_for_success_ends_with_the_first_that_fails(server: FakeServer) -> None:
    _serve(server, job_1=["running"], job_2=["running", "failed"])
    done = run(server, "wait", "job_1", "job_2", "--for", "succeeded")
    assert (done.returncode, done.stdout) == (1, "job_2  failed\n")


def test_waiting_until_jobs_run_does_not_wait_for_their_end(server: FakeServer, approved: Approved) -> None:
    _serve(server, job_1=["queued", "starting", "running"], job_2=["running"])
    done = run(server, "wait", "job_1", "job_2", "--for", "running")
    assert (done.returncode, done.stdout) == (0, approved("output"))


def test_a_paused_job_has_not_ended(server: FakeServer) -> None:
    _serve(server, job_1=["paused", "queued", "running", "succeeded"])
    assert run(server, "wait", "job_1").returncode == 0


def test_the_time_is_over(server: FakeServer, approved: Approved) -> None:
    _serve(server, job_1=["running"], job_2=["failed"])
    done = run(server, "wait", "job_1", "job_2", "--timeout", "0s")
    assert (done.returncode, done.stdout) == (124, "job_2  failed\n")
    assert done.stderr == approved("stderr")


def test_json_has_the_jobs_as_they_are_at_the_end(server: FakeServer) -> None:
    _serve(server, job_1=["running", "succeeded"], job_2=["cancelled"])
    done = run(server, "wait", "job_1", "job_2", "--json")
    assert [found["state"] for found in json.loads(done.stdout)] == ["succeeded", "cancelled"]
    assert done.returncode == 3


def test_a_wrong_time_is_named(server: FakeServer) -> None:
    done = run(server, "wait", "job_1", "--timeout", "soon")
    assert done.returncode == 2
    assert "--timeout" in done.stderr
    assert server.requests == []


def test_a_job_that_is_not_there_is_an_error(server: FakeServer) -> None:
    server.on("/v1/jobs", {"data": [], "has_more": False, "next": None})
    done = run(server, "wait", "job_9")
    assert (done.returncode, done.stdout) == (1, "")
