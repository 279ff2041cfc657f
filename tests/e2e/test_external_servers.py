"""External PostgreSQL and Redis servers: only the addresses change, under `up` and with separate programs."""

from collections.abc import Generator
from contextlib import ExitStack
import os
from pathlib import Path
import signal
import subprocess
import sys

import pytest

from tests.databases import PostgreSQLDatabases
from tests.e2e.service import Service, running, until
from tests.servers import free_port, redis_server_with_password
from torchyard.client import Client
from torchyard.contract.states import JobState

TOKEN = "the-admin-token"
SCRIPT = "print('trained')\n"


@pytest.fixture
def redis_url(tmp_path: Path) -> Generator[str]:
    folder = tmp_path / "redis"
    folder.mkdir()
    with redis_server_with_password(folder, "the-redis-password") as url:
        yield url


@pytest.fixture
def postgresql_url(postgresql: PostgreSQLDatabases) -> Generator[str]:
    with postgresql.empty() as url:
        yield url


@pytest.mark.thorough
def test_up_with_external_servers_starts_none_of_its_own(tmp_path: Path, postgresql_url: str, redis_url: str) -> None:
    with running(Service(tmp_path, database=postgresql_url, redis=redis_url, warm=False)) as service:
        until(lambda: "controller" in service.server["processes"], what="the controller runs")
        assert service.server["processes"].keys() == {"api", "worker", "controller"}
        assert not (service.data / "torchyard.db").exists()
        config = {"code": service.script("trains", SCRIPT), "command": "python", "args": ["train.py"]}
        job = service.client.submit({"trainer": "script", "config": config})
        service.wait(job.id, JobState.SUCCEEDED)
        assert [line.text for line in service.client.jobs.logs(job.id, rank=0)] == ["trained"]
        starts = service.client.workers.list()[0].starts
        assert starts is not None
        assert (starts.mode, starts.why) == (
            "cold",
            "no warm process: TORCHYARD_LAUNCHER is torchrun",
        )


@pytest.mark.thorough
def test_the_programs_work_when_started_one_by_one(tmp_path: Path, postgresql_url: str, redis_url: str) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(SCRIPT)
    port = free_port()
    environment = os.environ | {
        "TORCHYARD_DATABASE_URL": postgresql_url,
        "TORCHYARD_REDIS_URL": redis_url,
        "TORCHYARD_DATA_DIR": str(tmp_path / "data"),
        "TORCHYARD_TOKEN": TOKEN,
        "TORCHYARD_PORT": str(port),
        "TORCHYARD_CPU_SLOTS": "1",
        "TORCHYARD_ALLOW_PATHS": str(code),
        "TORCHYARD_LAUNCHER": "torchrun",  # a warm process costs seconds of a processor
    }
    with ExitStack() as stack:

        def start(program: str) -> subprocess.Popen[bytes]:
            log = stack.enter_context((tmp_path / f"{program}.log").open("wb"))
            argv = [sys.executable, "-P", "-m", program]
            process = subprocess.Popen(argv, env=environment, cwd=tmp_path, stdout=log, stderr=log)
            stack.callback(process.kill)
            return process

        def logs() -> str:
            return "\n".join(path.read_text() for path in tmp_path.glob("*.log"))

        assert start("migrations").wait(120) == 0, logs()
        api, worker, controller = start("api"), start("worker"), start("controller")
        with Client(f"http://127.0.0.1:{port}", TOKEN) as client:
            until(lambda: _ready(client), what="the API is ready", context=logs)
            job = client.submit({"trainer": "script", "config": {"code": f"file://{code}"}})
            until(lambda: client.get(job.id).state == JobState.SUCCEEDED, what="the job succeeds", context=logs)
            assert [line.text for line in client.jobs.logs(job.id, rank=0)] == ["trained"]
        for process, number in ((worker, signal.SIGINT), (controller, signal.SIGTERM), (api, signal.SIGTERM)):
            process.send_signal(number)
            assert process.wait(60) == 0, logs()
        assert "the-redis-password" not in logs()


def _ready(client: Client) -> bool:
    try:
        return client.ready().status == "ok"
    except Exception:  # noqa: BLE001 - not yet, whatever it says
        return False
