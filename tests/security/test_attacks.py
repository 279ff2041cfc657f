"""A job that attacks the service, as a review did, gets nothing that is not its own."""

from collections.abc import Generator
import json
import os
from pathlib import Path
import socket
from typing import Any
from urllib.parse import urlsplit
import uuid

import pytest

from tests.databases import quick_on_sqlite
from tests.e2e.service import Service, running, until
from tests.e2e.shared import HOME_FILES
from tests.worker.attempt import isolation
from torchyard.contract.attempts.records import ProcessIdentity
from torchyard.contract.cluster.devices import IsolationReport
from torchyard.contract.states import JobState
from worker.host import process
from worker.sandbox import levels
from worker.sandbox.shared import TEMPORARY

ATTACK = Path(__file__).with_name("attack.py")
SECRET_FILES = (
    "token",
    "server.json",
    "secret.key",
    "torchyard.db",
    "redis/password",
    "redis/users.acl",
    "worker.json",
)

pytestmark = pytest.mark.skipif(isolation().level != "landlock", reason="this host has no Landlock")


@pytest.fixture(scope="session")
def service(shared_service: Service) -> Service:
    """The service of the tests in `tests/e2e`, whose user has keys and login files."""
    shared_service.client.secrets.set("KEY", "value")  # makes the key file
    return shared_service


@pytest.fixture
def abstract() -> Generator[str]:
    """The name of an abstract socket that listens outside every sandbox."""
    name = f"torchyard-{uuid.uuid4()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        yield name


@pytest.fixture
def run_socket() -> Generator[str | None]:
    """The path of a socket in `/run` that listens, or None: only root makes one there."""
    if not os.access("/run", os.W_OK) or not isolation().own_mounts:
        yield None
        return
    path = Path(f"/run/torchyard-{uuid.uuid4()}")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        yield str(path)
    path.unlink()


@pytest.fixture
def terminal() -> Generator[str]:
    """The path of a terminal of the same user."""
    ours, theirs = os.openpty()
    yield os.ttyname(theirs)
    os.close(ours)
    os.close(theirs)


@pytest.fixture
def outside(terminal: str, run_socket: str | None) -> dict[str, Any]:
    return {"terminals": [terminal], "run_socket": run_socket}


@quick_on_sqlite
@pytest.mark.parametrize("launcher", ["warm", pytest.param("torchrun", marks=pytest.mark.thorough)])
def test_a_job_touches_only_what_is_its_own(
    service: Service, home: Path, abstract: str, outside: dict[str, Any], launcher: str
) -> None:
    targets = targets_of(service, home, abstract) | outside
    before = _state(service.data, home), _priorities(service)
    found = _attack(service, targets, launcher)
    assert {name: result for name, result in found.items() if not result.startswith("refused")} == {}
    assert (_state(service.data, home), _priorities(service)) == before


@quick_on_sqlite
@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees where these processes work")
def test_a_program_of_the_service_works_in_an_empty_folder(service: Service) -> None:
    empty = service.data / "empty"
    programs = _programs(service)
    works = {name: Path(f"/proc/{programs[name].pid}/cwd").readlink() for name in ("the API", "the worker")}
    assert works == {"the API": empty, "the worker": empty}
    assert list(empty.iterdir()) == []


@pytest.mark.thorough
def test_the_same_attacks_succeed_where_isolation_is_off(home: Path, abstract: str, tmp_path: Path) -> None:
    """So the other tests can fail."""
    with running(Service(tmp_path, env={"HOME": str(home), "TORCHYARD_ISOLATION": "off"}, warm=False)) as service:
        service.client.secrets.set("KEY", "value")
        targets = targets_of(service, home, abstract) | {"groups": ["files", "servers"]}
        found = _attack(service, targets, "auto", level=levels.OFF)
        refused = {name for name, result in found.items() if not result.startswith("got")}
        assert refused == {"Redis", "the API"}  # they ask for a password and a token


def targets_of(service: Service, home: Path, abstract: str) -> dict[str, Any]:
    victim = service.submit_script("victim", "import torchyard\ntorchyard.init().save_checkpoint({}, step=1)\n")
    service.wait(victim.id, JobState.SUCCEEDED)
    url = urlsplit(service.server["url"])
    others = service.data.parent.with_name(f"{service.data.parent.name}-of-others")
    others.mkdir(exist_ok=True)
    redis = next(path for path in (service.data / "redis").rglob("*") if path.is_socket())
    return {
        "data": str(service.data),
        "home": str(home),
        "code": str(service.code),
        "another_run": str(service.data / "runs" / victim.id / "1"),
        "temporary": str(others),
        "hidden": [str(TEMPORARY)] if isolation().own_mounts else [],
        "secret_files": [name for name in SECRET_FILES if (service.data / name).exists()],
        "home_files": HOME_FILES,
        "processes": {name: (item.pid, item.start_time) for name, item in _programs(service).items()},
        "redis": str(redis),
        "host": url.hostname,
        "port": url.port,
        "abstract": abstract,
    }


def _programs(service: Service) -> dict[str, ProcessIdentity]:
    """Returns the service's programs: Redis permits its inspection where the sandbox does not stop it."""
    wanted = {"the API": "api", "the worker": "worker", "Redis": "redis-server"}
    found = {
        item: Path(f"/proc/{item.pid}/cmdline").read_bytes().decode().replace("\0", " ").split()
        for item in process.descendants(service.pid)
    }
    programs = {
        name: item
        for name, word in wanted.items()
        for item, argv in found.items()
        if any(part == word or part.endswith(f"/{word}") for part in argv)
    }
    assert programs.keys() == wanted.keys(), found
    up = process.identity(service.pid)
    assert up is not None
    return programs | {"up": up}


def _priorities(service: Service) -> dict[str, tuple[int, int]]:
    """Returns priority and scheduler of the service's programs."""
    pids = {name: item.pid for name, item in _programs(service).items()}
    return {name: (os.getpriority(os.PRIO_PROCESS, pid), os.sched_getscheduler(pid)) for name, pid in pids.items()}


def _attack(
    service: Service, targets: dict[str, Any], launcher: str, *, level: IsolationReport | None = None
) -> dict[str, str]:
    """Returns what came of the attacks of a job. Its event says at which level it ran."""
    level = level or isolation()
    (worker,) = service.client.workers.list()
    assert worker.starts is not None
    assert worker.starts.isolation is not None
    assert worker.starts.isolation == level
    code = service.script("attack", ATTACK.read_text())
    (service.code / "attack" / "targets.json").write_text(json.dumps(targets))
    config = {"code": code, "args": [str(service.code / "attack" / "targets.json")]}
    job = service.client.submit({"trainer": "script", "config": config, "launcher": launcher, "max_restarts": 0})
    service.wait(job.id, JobState.SUCCEEDED)
    events = [*service.client.jobs.events(job.id)]
    (running,) = [event.data["reason"]["message"] for event in events if event.data.get("to") == "running"]
    assert running == f"1 process runs; {levels.describe(level)}"
    result = service.data / "runs" / job.id / "1" / "job" / "attacks.json"
    return json.loads(until(lambda: result.read_text() or None, what="the attacks are written"))


def _state(data: Path, home: Path) -> dict[str, tuple[int, int]]:
    """Returns mode and size of what no job may change."""
    files = [
        data,
        *(data / name for name in SECRET_FILES if not name.endswith(".db")),
        *(home / name for name in HOME_FILES),
    ]
    return {str(path): (path.stat().st_mode, path.stat().st_size * path.is_file()) for path in files if path.exists()}
