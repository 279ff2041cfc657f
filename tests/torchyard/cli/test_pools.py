"""Pools and the jobs in them on the command line, against a real service to which a pool's daemon has reported."""

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from scheduling.snapshot import Placement
from store.attempts import claim as claims
from store.attempts import state as attempts
from store.attempts.facts import Claim, NodeHeld
from store.cluster import workers
from store.db.database import Database
from store.ids import new_id
from tests.approved import Approved
from tests.databases import SQLiteDatabases
from tests.torchyard.cli.service import Team, serving_team
from torchyard.client import Client
from torchyard.contract.cluster.devices import DeviceReport, PoolNodes, PoolReport, PoolRules
from torchyard.contract.states import WAITING_IN_SLURM, Reason

HOLDER = "n0/boot"
NODES = PoolNodes(count=3, devices=4, gpus=["a100"], cpus=64, memory_gb=512.0)
RULES = PoolRules(accounts=["vision"], qos=["high"], constraints=["nvlink&ib"], reservations=["course"])
POOL = PoolReport(partition="gpu", kind="cuda", nodes=NODES, max_time_s=86_400, rules=RULES)


class Pool:
    """A pool of a service, and what its daemon does."""

    def __init__(self, database: Database, name: str) -> None:
        self._database = database
        self.name = name
        self._id = new_id("wrk")
        self.report(POOL)

    def report(self, pool: PoolReport) -> None:
        with self._database.write() as session:
            workers.register_pool(session, self._id, name=self.name, holder=HOLDER, pool=pool.to_dict())

    def take(self, job_id: str) -> Claim:
        """Gives the job to the cluster, in whose queue it waits."""
        with self._database.write() as session:
            claim = claims.claim(session, job_id, Placement(self._id, ()), holder=HOLDER)
            assert claim is not None
            reason = Reason(WAITING_IN_SLURM, "waits in Slurm: Priority; expected to start at 14:05 UTC")
            attempts.set_reason(session, claim, reason)
        return claim

    def run(self, claim: Claim, hosts: Sequence[str]) -> None:
        """The cluster has chosen these nodes."""
        nodes = [NodeHeld(host, [_device(host, index) for index in range(2)]) for host in hosts]
        with self._database.write() as session:
            attempts.hold_nodes(session, claim, nodes)
            attempts.mark_running(session, claim, reason=Reason("running", "every rank runs"))


def _device(host: str, index: int) -> DeviceReport:
    return DeviceReport(index=index, uuid=f"GPU-{host}-{index}", name="A100", kind="cuda")


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory, sqlite: SQLiteDatabases) -> Generator[Team]:
    with serving_team(tmp_path_factory.mktemp("team"), sqlite) as team:
        yield team


@pytest.fixture(scope="module")
def pool(team: Team) -> Generator[Pool]:
    with closing(Database(team.database_url)) as database:
        yield Pool(database, "gpu")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("print(1)\n")
    return tmp_path


def run(team: Team, folder: Path, *options: str) -> str:
    """Runs the folder's program as a job over two nodes. Returns its id."""
    words = ("run", "-d", "--nodes", "2", "--devices", "2", *options, "train.py")
    done = team.run("admin", *words, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def lines(team: Team, *arguments: str) -> list[str]:
    done = team.run("admin", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_run_over_nodes_is_one_in_the_only_pool(team: Team, pool: Pool, folder: Path) -> None:
    given = ["--account", "vision", "--qos", "high", "--constraint", "nvlink&ib", "--reservation", "course"]
    done = team.run("admin", "run", "-d", "--nodes", "2", "--devices", "4", *given, "train.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert {
        "devices    4 on each of 2 nodes",
        "pool       account vision, qos high, constraint nvlink&ib, reservation course",
    } <= {*done.stderr.splitlines()}
    with Client(team.url, team.tokens["admin"]) as client:
        spec = client.get(done.stdout.strip()).view.spec
    assert (spec.resources.nodes, spec.resources.devices_per_node, spec.resources.pool) == (2, 4, pool.name)
    assert spec.slurm is not None
    assert [*spec.slurm.model_dump().values()] == ["vision", "high", "nvlink&ib", "course"]


def test_what_a_pool_has_not_is_refused_with_the_option_to_change(team: Team, pool: Pool, folder: Path) -> None:
    done = team.run("admin", "run", "-d", "--nodes", "4", "--account", "other", "train.py", cwd=folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert "resources.nodes: must be at most 3: pool gpu has 3 nodes" in done.stderr
    assert "slurm.account: must be vision in pool gpu" in done.stderr
    done = team.run("admin", "run", "-d", "--pool", "cpu", "train.py", cwd=folder)
    assert (done.returncode, "there is no pool cpu" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    "option",
    [
        ("--account", "-x"),
        ("--qos", "a b"),
        ("--constraint", "-x"),
        ("--constraint", "a;b"),
        ("--reservation", "a,b"),
        ("--pool", "../gpu"),
        ("--nodes", "10001"),
    ],
)
def test_a_word_that_slurm_would_take_for_something_else_is_no_option(
    team: Team, pool: Pool, folder: Path, option: tuple[str, str]
) -> None:
    done = team.run("admin", "run", "-d", f"{option[0]}={option[1]}", "train.py", cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{option[0]} must be" in done.stderr


def test_pools_have_a_table_of_their_own_which_counts_their_jobs(
    team: Team, pool: Pool, folder: Path, approved: Approved
) -> None:
    claim = pool.take(run(team, folder))
    pool.take(run(team, folder))
    pool.run(claim, ["n1", "n2"])
    pool.report(POOL)
    heading, row = lines(team, "workers", "ls")
    assert heading.split() == [
        *("POOL", "STATE", "PARTITION", "NODES", "DEVICES", "LIMIT", "WAITING", "RUNNING", "SEEN")
    ]
    told = "gpu   ready  gpu (up)   3      4 GPUs (a100) each  1 d 0 h  1        1        "
    assert row.startswith(told)
    floor = lines(team, "top", "--once")
    assert floor[1] == heading and floor[2].startswith(told)
    assert lines(team, "drain", "gpu", "--yes") == [approved("lines")]
    assert lines(team, "undrain", "gpu") == ["gpu  ready"]


def test_a_pool_says_why_no_job_starts_there(team: Team, pool: Pool) -> None:
    pool.report(replace(POOL, obstacle="Slurm does not answer"))
    assert lines(team, "workers", "ls")[2:] == ["gpu: Slurm does not answer"]
    pool.report(POOL)
    assert len(lines(team, "workers", "ls")) == 2


def test_why_has_the_words_of_slurm_and_shows_the_pool(team: Team, pool: Pool, folder: Path) -> None:
    job_id = run(team, folder)
    waiting = lines(team, "why", job_id)
    assert "requests   2 nodes with 2 GPUs each in pool gpu, at priority 0" in waiting
    claim = pool.take(job_id)
    said = lines(team, "why", job_id)
    assert said[0].endswith("is starting: waits in Slurm: Priority; expected to start at 14:05 UTC")
    assert "requests   2 nodes with 2 GPUs each in pool gpu, at priority 0" in said
    assert [line.split()[0] for line in said if line.startswith(("POOL", "gpu", "WORKER"))] == ["POOL", "gpu"]
    assert any("waits in Slurm: Priority" in line for line in lines(team, "ps"))
    pool.run(claim, ["n1", "n2"])
    assert not any("POOL" in line for line in lines(team, "why", job_id))


def test_a_job_shows_its_devices_by_node(team: Team, pool: Pool, folder: Path) -> None:
    job_id = run(team, folder)
    pool.run(pool.take(job_id), ["n2", "n3"])
    shown = lines(team, "show", job_id)
    begins = shown.index("devices    n2: A100 #0, A100 #1")
    assert shown[begins + 1] == "           n3: A100 #0, A100 #1"
    with Client(team.url, team.tokens["admin"]) as client:
        (attempt,) = client.jobs.attempts(job_id)
    assert [device.node for device in attempt.devices] == [0, 0, 1, 1]
