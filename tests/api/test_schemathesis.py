"""Checks the interface against its OpenAPI document: every operation and check of schemathesis, with random requests.
`make test-thorough` runs its other phases too, which take minutes."""

import base64
from collections.abc import Generator
from contextlib import contextmanager, suppress
import json
from pathlib import Path
import subprocess
import sys
from threading import Event, Thread

import pytest

from store.cluster import workers
from store.output.facts import MetricPoint, NewLines
from tests.api.service import TOKEN, ApiFixture, usual_document
from tests.api.serving import api_process
from torchyard.contract.errors import NotFound, StaleClaim
from torchyard.contract.states import EndReason
from torchyard.contract.team.roles import Role

_LONGEST_S = 540
"""On a busy machine; an idle one needs a minute."""

ENDLESS = ["--exclude-operation-id", "stream_jobs"]
"""What goes on until the caller leaves, which schemathesis never does. tests/api/test_jobs_stream.py has it."""
MARK = "hidden-project"
"""What nobody but its owner may see."""

CONFIGURATION = """\
seed = 20251
request-timeout = 70.0
headers = { Authorization = "Bearer TOKEN" }

[generation]
max-examples = 2
deterministic = true
no-shrink = true
database = "none"

[phases.stateful]
max-steps = 6

# A valid request may also be answered by 304 (not modified), 416 (range) or 414 (URL too long).
[checks.positive_data_acceptance]
expected-statuses = ["2xx", 304, 401, 403, 404, 409, 414, 416]

# A request that is too large is refused before it is parsed.
[checks.negative_data_rejection]
expected-statuses = [401, 404, 409, 413, 414, 422, 503]

# A spec has rules between its fields; not every text is a regular expression; a key may belong to another request, a
# checkpoint to another job, and bytes to another bundle. A name in an answer may not be one that a secret can have.
# A sweep and a target have rules between their fields, too, and a schedule is a spec with one key more. A cursor of a
# list of jobs belongs to its order, and a group to what it is grouped by. A program has arguments or a terminal.
[[operations]]
include-operation-id = [
  "submit_job", "validate_spec", "retry_job", "list_checkpoints", "upload_bundle", "set_secret", "search_logs",
  "submit_sweep", "validate_sweep", "extend_sweep", "add_schedule", "add_target", "list_jobs",
  "make_log_curves", "open_reach",
]
checks.positive_data_acceptance.expected-statuses = ["2xx", 401, 404, 409, 413, 414, 422, 429, 503]
"""


@pytest.mark.parametrize("databases", ["sqlite"], indirect=True)
@pytest.mark.timeout(_LONGEST_S + 60)
@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["--phases", "coverage", "--include-operation-id", "change_job"], marks=pytest.mark.thorough),
        pytest.param(["--phases", "coverage"], marks=pytest.mark.thorough),
        pytest.param(["--phases", "examples,stateful"], marks=pytest.mark.thorough),
        pytest.param(["--phases", "fuzzing", "--include-method", "GET"], marks=pytest.mark.thorough),
        ["--phases", "fuzzing", "--max-examples", "1", "--exclude-method", "GET"],
    ],
    ids=["coverage-of-a-change", "coverage", "stateful", "random-reads", "random"],
)
def test_every_operation_matches_its_description(
    service: ApiFixture, tmp_path: Path, database_url: str, redis_url: str, options: list[str]
) -> None:
    (tmp_path / "schemathesis.toml").write_text(CONFIGURATION.replace("TOKEN", TOKEN))
    unlimited = {"max_requests_per_second": 1_000_000, "max_wrong_tokens_per_minute": 1_000_000}
    with api_process(tmp_path, database_url, redis_url, **unlimited) as (_, url), every_job_succeeds(service):
        done = schemathesis(url, *options, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in (tmp_path / "api.log").read_text()


@pytest.mark.thorough
@pytest.mark.parametrize("databases", ["sqlite"], indirect=True)
@pytest.mark.timeout(_LONGEST_S + 60)
@pytest.mark.parametrize("role", [Role.VIEWER, Role.MEMBER, Role.OPERATOR])
def test_no_answer_shows_another_users_private_jobs(
    service: ApiFixture, tmp_path: Path, database_url: str, redis_url: str, role: Role
) -> None:
    service.act_as("alice")
    hidden = [service.submit(name=f"{MARK}-{number}", labels={"for": MARK})["id"] for number in range(3)]
    succeed(service, hidden[0])
    service.start(hidden[1], device="cpu-1")
    service.act_as("bob", role)
    token = str(service.client.headers["Authorization"]).removeprefix("Bearer ")
    (tmp_path / "schemathesis.toml").write_text(CONFIGURATION.replace("TOKEN", token))
    unlimited = {"max_requests_per_second": 1_000_000, "max_wrong_tokens_per_minute": 1_000_000}
    with api_process(tmp_path, database_url, redis_url, **unlimited) as (_, url):
        options = ["--phases", "examples,fuzzing,stateful", "--checks", "not_a_server_error"]
        report = ["--report", "har", "--report-har-path", str(tmp_path / "answers.har")]
        done = schemathesis(url, *options, *report, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    exchanges = json.loads((tmp_path / "answers.har").read_text())["log"]["entries"]
    assert len(exchanges) > 50
    for answer in (exchange["response"] for exchange in exchanges):
        text = decoded(answer["content"])
        if role is not Role.OPERATOR:
            assert not any(job_id in text for job_id in hidden), text
            assert MARK not in text
        assert f'"for":"{MARK}"' not in text


def schemathesis(url: str, *options: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs it without what it advises, for which it analyzes the document a second time."""
    document = folder / "openapi.json"
    document.write_text(json.dumps(usual_document()))
    argv = [sys.executable, "-m", "schemathesis.cli", "run", str(document), "--url", url, "--warnings", "off"]
    argv += [*ENDLESS, *options]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False, timeout=_LONGEST_S)


def decoded(content: dict[str, str]) -> str:
    text = content.get("text", "")
    return base64.b64decode(text).decode(errors="replace") if content.get("encoding") == "base64" else text


@contextmanager
def every_job_succeeds(service: ApiFixture) -> Generator[None]:
    """Runs a worker that completes each job at once, so that streams end and jobs have data."""
    over = Event()

    def work() -> None:
        while not over.wait(0.2):
            for job_id, _ in service.queued_rows():
                with suppress(StaleClaim, AssertionError):  # the job was cancelled meanwhile
                    succeed(service, job_id)

    thread = Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def succeed(service: ApiFixture, job_id: str) -> None:
    with suppress(NotFound), service.database.write("drain") as session:
        workers.set_drain(session, service.worker_id, drain=False)
    claim = service.start(job_id)
    saved = service.new_checkpoint(step=2, epoch=1, files={"state.pt": b"state" * 100}, val_loss=0.5)
    points = [MetricPoint("train/loss", step, 1 / (step + 1), 1_700_000_000_000_000 + step) for step in range(3)]
    service.record(claim, points=points, lines=[NewLines(0, "stdout", ["one", "two"])], checkpoints=[saved])
    service.end(claim, reason=EndReason.COMPLETED)
