"""What a stop costs, at the command line: `--dry-run`, and the question at a terminal. Against a real service."""

from collections.abc import Callable
import json

import pytest
from sqlalchemy import update

from scheduling.snapshot import Device, Placement
from store.attempts import claim as claims
from store.attempts import state as attempts
from store.cluster import workers
from store.db.database import Database
from store.ids import new_id
from store.tables import Attempt
from tests.approved import Approved
from tests.torchyard.cli.invocation import environment
from tests.torchyard.cli.service import Team
from tests.torchyard.cli.terminal import in_terminal
from torchyard.client import Client
from torchyard.contract.errors import NotFound
from torchyard.contract.states import Reason

LOST = "18 CPU-min are lost"
SLOTS = [{"index": 0, "uuid": "cpu-0", "name": "CPU slot", "kind": "cpu"}]
Start = Callable[..., str]


@pytest.fixture
def start(team: Team, request: pytest.FixtureRequest) -> Start:
    """Submits a job that has run for 18 minutes on a worker with the name `box-NAME`, and returns its id."""
    team.add(owner := f"ada-{abs(hash(request.node.name))}")
    team.tokens["ada"] = team.tokens[owner]

    def started(name: str = "digits") -> str:
        with Client(team.url, team.tokens["ada"]) as client:
            job_id = client.submit({"trainer": "image-classification", "name": name}).id
        database, worker = Database(team.database_url), new_id("wrk")
        with database.write() as session:
            workers.register(session, worker, name=f"box-{name}", devices=SLOTS)
            held = Device(index=0, uuid="cpu-0", name="CPU slot", kind="cpu")
            claim = claims.claim(session, job_id, Placement(worker, (held,)))
            assert claim is not None
            attempts.mark_running(session, claim, reason=Reason("running", "every rank runs"))
            earlier = Attempt.started_at - 18 * 60_000_000
            session.execute(update(Attempt).where(Attempt.id == claim.attempt_id).values(started_at=earlier))
        database.close()
        return job_id

    return started


def reason(team: Team, job_id: str) -> str:
    with Client(team.url, team.tokens["ada"]) as client:
        return client.get(job_id).view.status_reason.code


def asked(team: Team, *arguments: str, answer: str, user: str = "ada") -> tuple[int, str]:
    """Runs the command at a terminal, and answers its question. Returns the exit code and what it showed."""
    code, screen = in_terminal(
        arguments, environment(team.url, team.tokens[user]), answer=f"{answer}\n", shown="[y/N]", columns=400
    )
    return code, screen.replace("\r\n", "\n")


def test_a_dry_run_says_what_a_stop_would_cost_and_does_nothing(team: Team, start: Start) -> None:
    job_id = start()
    first = f"saves a checkpoint first; if that fails, {LOST}"
    for command, said in {
        ("pause",): f"pause: 1 job\n{first}\n",
        ("cancel",): f"cancel: 1 job\n{first}\n",
        ("cancel", "--now"): f"cancel: 1 job\nkilled without saving: {LOST}\n",
    }.items():
        assert team.run("ada", *command, job_id, "--dry-run").stdout == said
        assert team.run("ada", *command, "--search", job_id, "--dry-run").stdout == said
    told = json.loads(team.run("ada", "cancel", job_id, "--dry-run", "--json").stdout)
    assert (told["matched"], told["done"], told["price"]["total"]) == (1, 0, 1)
    assert team.run("ada", "cancel", "nothing", "--dry-run").returncode == 1
    assert reason(team, job_id) == "running"


def test_of_several_jobs_each_is_told(team: Team, start: Start) -> None:
    ids = [start("one"), start("two")]
    said = team.run("ada", "pause", *ids, "--dry-run").stdout.splitlines()
    assert said[:2] == ["pause: 2 jobs", "2 running jobs, if none saves first: 36 CPU-min are lost"]
    assert sorted(said[2:]) == sorted(
        f"  {job_id}  {name}  no checkpoint yet: up to {LOST}" for job_id, name in zip(ids, ("one", "two"), strict=True)
    )


@pytest.mark.parametrize("command", ["cancel", pytest.param("pause", marks=pytest.mark.thorough)])
def test_a_terminal_is_asked_before_a_job_stops_that_runs(team: Team, start: Start, command: str) -> None:
    job_id = start()
    for chosen in ([job_id], ["--search", job_id]):
        code, screen = asked(team, command, *chosen, answer="n")
        assert code != 0
        assert f"saves a checkpoint first; if that fails, {LOST}" in screen and f"{command} 1 job? [y/N]" in screen
        assert reason(team, job_id) == "running"
    code, screen = asked(team, command, job_id, answer="y")
    assert (code, reason(team, job_id)) == (0, "stopping"), screen


@pytest.mark.parametrize("command", ["cancel", pytest.param("pause", marks=pytest.mark.thorough)])
def test_nothing_is_asked_with_yes_or_of_a_job_that_waits(team: Team, start: Start, command: str) -> None:
    job_id = start()
    code, screen = asked(team, command, job_id, "--yes", answer="n")
    assert (code, "?" in screen, reason(team, job_id)) == (0, False, "stopping")
    with Client(team.url, team.tokens["ada"]) as client:
        waits = client.submit({"trainer": "image-classification"}).id
    code, screen = asked(team, command, waits, answer="n")
    assert (code, "?" in screen) == (0, False)


def test_without_a_terminal_jobs_stop_unasked(team: Team, start: Start, approved: Approved) -> None:
    job_id = start()
    assert team.run("ada", "pause", job_id).stdout == approved("output", job_id=job_id)
    assert team.run("ada", "cancel", job_id).stdout == approved("running being cancelled", job_id=job_id)


def test_a_drain_says_what_it_stops(team: Team, start: Start, approved: Approved) -> None:
    job_id = start("drained")
    first = f"box-drained  saves a checkpoint first; if that fails, {LOST}\n"
    assert team.run("admin", "drain", "box-drained", "--dry-run").stdout == first
    (told,) = json.loads(team.run("admin", "drain", "box-drained", "--dry-run", "--json").stdout)
    assert told["jobs"][0]["name"] == "drained"
    code, screen = asked(team, "drain", "box-drained", answer="n", user="admin")
    assert (code != 0, first in screen, "drain box-drained? [y/N]" in screen) == (True, True, True)
    refused = team.run("admin", "drain", "box-drained")
    assert (refused.returncode, "confirmation without a terminal: use --yes" in refused.stderr) == (2, True)
    filtered = team.run("ada", "pause", "--search", "drained")
    assert (filtered.returncode, "use --yes" in filtered.stderr, reason(team, job_id)) == (2, True, "running")
    assert team.run("admin", "drain", "box-drained", "--yes").stdout == approved("output")


def test_a_drain_of_an_idle_worker_is_not_asked_about(team: Team) -> None:
    database = Database(team.database_url)
    with database.write() as session:
        workers.register(session, new_id("wrk"), name="box-idle", devices=[])
    database.close()
    said = "box-idle  nothing is lost: no job is running\n"
    assert team.run("admin", "drain", "box-idle", "--dry-run").stdout == said
    code, screen = asked(team, "drain", "box-idle", answer="n", user="admin")
    assert (code, "?" in screen) == (0, False)
    assert team.run("admin", "drain", "box-idle").returncode == 0


def test_a_client_asks_for_prices(team: Team, start: Start, approved: Approved) -> None:
    job_id = start("priced")
    with Client(team.url, team.tokens["ada"]) as client:
        price = client.jobs.price_of_stop(job_id, "pause")
        assert price.message == approved("message", lost=LOST)
        assert client.get(job_id).price_of_stop(now=True).message == approved("killed and saves")
        with pytest.raises(NotFound):
            client.jobs.price_of_stop("job_" + "0" * 32)
    with Client(team.url, team.tokens["admin"]) as client:
        worker = next(worker for worker in client.workers.list() if worker.name == "box-priced")
        assert client.workers.price_of_drain(worker.id).message == price.message
