"""What a user who reaches into a job gets of another user's job on the same host, and of the service: nothing."""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.service import Service, running, until
from tests.e2e.test_reaches import Client, ask, met
from tests.security.test_attacks import ATTACK, targets_of
from tests.torchyard.cli.invocation import run_process
from tests.worker.attempt import isolation
from torchyard.client import Client as ServiceClient
from torchyard.contract.reach.frames import Frame, Kind
from torchyard.contract.reach.orders import Target
from torchyard.contract.states import JobState
from torchyard.contract.team.roles import Scope
from worker.host import process

pytestmark = [
    pytest.mark.thorough,  # each means of the sandbox is attacked from a rank in `test_attacks`
    pytest.mark.skipif(isolation().level != "landlock", reason="this host has no Landlock"),
]

PROGRAM = """
import json, os, pathlib, socket, time
import torchyard
torchyard.init().save_checkpoint({"weights": 1}, step=1)
run = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"])
os.chdir(run)  # a socket has a short path
(run / "own.txt").write_text("mine")
port = socket.create_server(("127.0.0.1", 0))
unix = socket.socket(socket.AF_UNIX)
unix.bind("own.sock")
unix.listen()
(run / "port.new").write_text(str(port.getsockname()[1]))
(run / "port.new").rename(run / "port")
time.sleep(3600)
"""
OF_A_RANK = {"the mode of a device"}
"""Attacks on the standard input of a rank: that of a user's program is a pipe of its own."""


@dataclass(frozen=True)
class Attacked:
    """A running job that saves a checkpoint, writes a file and listens."""

    id: str
    token: str
    """Of its user."""
    run: Path
    """The directory of its attempt."""
    port: int

    @property
    def folder(self) -> Path:
        """Where it writes."""
        return self.run / "job"

    def kept(self) -> list[str]:
        """Returns the files of its checkpoints."""
        return [str(path) for path in self.run.rglob("*") if path.is_file() and "checkpoints" in str(path)]

    def processes(self) -> dict[str, tuple[int, int]]:
        """Returns pid and start time of each process of the attempt that has a title."""
        found = {}
        for item in process.descendants(1):
            title = _title(item.pid)
            if title.startswith(f"torchyard:{self.id} "):
                found[title] = (item.pid, item.start_time)
        return found


@pytest.fixture(scope="session")
def service(shared_service: Service) -> Service:
    shared_service.client.secrets.set("KEY", "value")  # makes the key file
    return shared_service


@pytest.fixture
def targets(service: Service, home: Path) -> dict[str, Any]:
    """What the attacks on the service are about. A job runs for it, before `jobs` take all devices."""
    return targets_of(service, home, abstract="torchyard-nobody")


@pytest.fixture
def jobs(service: Service) -> Generator[tuple[Attacked, Attacked]]:
    """The jobs of two users, side by side: that of the attacker is the first."""
    with _jobs_of(service) as jobs:
        yield jobs


def test_a_program_beside_a_job_gets_nothing_of_another_job_or_of_the_service(
    service: Service, targets: dict[str, Any], jobs: tuple[Attacked, Attacked]
) -> None:
    attacker, victim = jobs
    others = victim.processes()
    assert {title.split()[-1] for title in others} >= {"supervisor", "door"}, others
    before = {path: Path(path).read_bytes() for path in victim.kept()}
    found = _attack(service, targets, attacker, victim)
    assert any(name.startswith("ptrace of torchyard:") for name in found)
    got = {name: result for name, result in found.items() if not result.startswith("refused")}
    assert {name: got[name] for name in got.keys() - OF_A_RANK} == {}
    assert {path: Path(path).read_bytes() for path in victim.kept()} == before
    assert victim.processes() == others


def test_the_same_attacks_on_the_other_job_succeed_where_isolation_is_off(tmp_path: Path) -> None:
    """So the other test can fail."""
    with running(Service(tmp_path, env={"TORCHYARD_ISOLATION": "off"}, warm=False)) as service:
        targets: dict[str, Any] = {"data": str(service.data), "home": "/nowhere", "processes": {}}
        with _jobs_of(service) as (attacker, victim):
            found = _attack(service, targets | {"groups": ["neighbour"]}, attacker, victim)
    assert len(found) > 20
    assert {name: result for name, result in found.items() if not result.startswith("got")} == {}


def test_ports_of_a_job_lead_to_no_other_job_and_not_to_the_service(
    service: Service, jobs: tuple[Attacked, Attacked]
) -> None:
    attacker, victim = jobs
    redis = next(path for path in (service.data / "redis").rglob("*") if path.is_socket())
    (attacker.folder / "link.sock").symlink_to(victim.folder / "own.sock")
    targets = {
        "the port of another job": Target(port=victim.port),
        "the service": Target(port=int(service.server["url"].rpartition(":")[2])),
        "the socket of another job": Target(path=str(victim.folder / "own.sock")),
        "a link to it": Target(path=str(attacker.folder / "link.sock")),
        "a way out of the folder": Target(
            path=f"{attacker.folder}/{os.path.relpath(victim.folder, attacker.folder)}/own.sock"
        ),
        "Redis": Target(path=str(redis)),
        "the door of another job": Target(path=str(victim.run / "ctl" / "door")),
        "its own door": Target(path=str(attacker.run / "ctl" / "door")),
        "its own secrets": Target(path=str(attacker.run / "ctl" / "shown" / "secrets.sock")),
    }
    opened = ask(service, f"/v1/jobs/{attacker.id}/reaches", {"kind": "ports"}, token=attacker.token)
    with met(service, opened) as client:
        assert _why_refused(client, 0, Target(port=attacker.port)) is None
        assert _why_refused(client, 1, Target(path=str(attacker.folder / "own.sock"))) is None
        answers = {name: _why_refused(client, 2 + i, each) for i, (name, each) in enumerate(targets.items())}
    assert {name for name, why in answers.items() if why is None} == set(), answers


def _attack(service: Service, targets: dict[str, Any], attacker: Attacked, victim: Attacked) -> dict[str, str]:
    """Returns what came of the attacks of a program that the attacker starts beside its own job."""
    (own,) = (at for title, at in attacker.processes().items() if title.endswith(" supervisor"))
    kept = victim.kept()
    assert kept
    targets["processes"] |= {"the supervisor": own} | victim.processes()
    targets["neighbour"] = {"run": str(victim.run), "kept": kept}
    path = attacker.folder / "targets.json"
    path.write_text(json.dumps(targets))
    command = ["exec", attacker.id, "--", "python3", "-c", ATTACK.read_text(), str(path)]
    done = run_process(command, _environment(service, attacker))
    assert done.returncode == 0, done.stderr
    return json.loads((attacker.folder / "attacks.json").read_text())


@contextmanager
def _jobs_of(service: Service) -> Generator[tuple[Attacked, Attacked]]:
    with ExitStack() as stack:
        attacker, victim = (stack.enter_context(_job_of(service, user)) for user in ("mallory", "victor"))
        yield attacker, victim


@contextmanager
def _job_of(service: Service, user: str) -> Generator[Attacked]:
    """Runs the job of a user, who is made first."""
    admin = service.client
    if user not in {each.name for each in admin.users.list()}:
        admin.users.add(user)
    scopes = (Scope.JOBS_READ, Scope.JOBS_WRITE, Scope.JOBS_EXEC)
    token = admin.tokens.make(user=user, scopes=scopes).token
    client = ServiceClient(url=service.server["url"], token=token)
    code = service.script(f"{user}-serves", PROGRAM)
    job = client.submit({"trainer": "script", "config": {"code": code}, "max_restarts": 0})
    try:
        service.wait(job.id, JobState.RUNNING)
        port = until(lambda: _port(service, job.id), what="the job listens")
        yield Attacked(job.id, token, service.data / "runs" / job.id / "1", port)
    finally:
        if not job.refresh().state.terminal:
            job.cancel(now=True)
            service.wait(job.id)


def _why_refused(client: Client, channel: int, target: Target) -> str | None:
    """Opens a channel. Returns None if it leads there."""
    client.refused, client.opened = None, False
    client.send(Frame(Kind.OPEN, channel, target.to_json().encode()))
    while client.refused is None and not client.opened:
        client.take()
    return client.refused


def _environment(service: Service, job: Attacked) -> dict[str, str]:
    return {**os.environ, "TORCHYARD_URL": service.server["url"], "TORCHYARD_TOKEN": job.token}


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").rstrip("\0")
    except OSError:
        return ""


def _port(service: Service, job_id: str) -> int | None:
    path = service.data / "runs" / job_id / "1" / "job" / "port"
    assert not service.client.get(job_id).state.terminal, [line.text for line in service.client.jobs.logs(job_id)]
    return int(path.read_text()) if path.exists() else None
