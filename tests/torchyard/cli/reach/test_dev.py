"""`dev`: what it submits, and what it says once the job runs."""

import json

import pytest

from tests.torchyard.cli.invocation import environment, run_in_process
from tests.torchyard.client.answers import job
from tests.torchyard.client.fake_server import TOKEN, Answer, FakeServer

LIMITS = {"time_limit": "8h", "idle_timeout": "1h"}


@pytest.mark.parametrize(
    ("words", "sent"),
    [
        ([], {"dev": LIMITS}),
        (["--name", "look", "--devices", "2"], {"dev": {**LIMITS, "name": "look"}, "devices": 2}),
    ],
)
def test_it_works_in_the_folder_of_another_job(server: FakeServer, words: list[str], sent: dict[str, object]) -> None:
    server.on("/v1/jobs/job_1", job(state="failed"))
    server.on("/v1/jobs/job_1/retry", Answer(job(id="job_2", name="digits", state="running"), 201))
    done = run_in_process(["dev", "--from", "job_1", "--editor", *words], environment(server.url, TOKEN))
    assert (done.returncode, done.stdout) == (0, "code --remote ssh-remote+digits.torchyard\n"), done.stderr
    (retried,) = [request for request in server.requests if request.path.endswith("/retry")]
    assert json.loads(retried.body) == sent


def test_it_does_not_take_packages_beside_those_of_another_job(server: FakeServer) -> None:
    done = run_in_process(["dev", "--from", "job_1", "--requirements", "r.txt"], environment(server.url, TOKEN))
    assert (done.returncode, "omit --requirements" in done.stderr) == (2, True)
    assert server.requests == []
