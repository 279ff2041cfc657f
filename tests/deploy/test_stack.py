"""Runs the commands and variables of docker-compose.yml without Docker, on a real PostgreSQL and Redis."""

from collections.abc import Iterator
from contextlib import ExitStack
import hashlib
import io
import os
from pathlib import Path
import shutil
import signal
import subprocess
import sys

from dotenv import dotenv_values
import httpx2
import psycopg
from psycopg import sql
import pytest
from redis import Redis
from redis.exceptions import AuthenticationError

from tests.deploy.compose import ROOT
from tests.deploy.stack import Stack
from tests.e2e.service import processes_naming, until
from tests.e2e.test_recovery import GATED
from tests.postgresql import PostgreSQLServer, postgresql_server
from tests.servers import free_port
from torchyard.cli.up.redis_server import find_binary


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    """Makes and parses a new env file; jobs may read the folder `code`."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    subprocess.run(["make", "env"], cwd=tmp_path, check=True)
    made = {name: value or "" for name, value in dotenv_values(tmp_path / ".env").items()}
    (tmp_path / "code").mkdir()
    return made | {
        "TORCHYARD_ALLOW_PATHS": str(tmp_path / "code"),
        "TORCHYARD_LAUNCHER": "torchrun",  # a warm process costs seconds of a processor
    }


@pytest.fixture
def stack(tmp_path: Path, variables: dict[str, str]) -> Iterator[Stack]:
    """Runs healthy PostgreSQL and Redis services, and stops everything afterwards."""
    ports = _free_ports(5432, 6379, 8000)
    with ExitStack() as undo:
        postgresql = undo.enter_context(postgresql_server({"listen_addresses": "127.0.0.1", "port": str(ports[5432])}))
        programs = [postgresql.binaries, find_binary().parent, Path(sys.executable).parent]
        stack = Stack(tmp_path, variables, ports=ports, programs=programs)
        undo.callback(_leaves_nothing, tmp_path)
        undo.callback(stack.stop_all)
        _initialise(postgresql, stack.environment("postgres"))
        until(lambda: stack.healthy("postgres"), what="postgres is healthy")
        stack.start("redis")
        yield stack


@pytest.mark.thorough
def test_the_declared_services_start_and_stop(stack: Stack, variables: dict[str, str]) -> None:
    _start(stack, variables)
    assert httpx2.get(f"{_url(stack)}/v1/jobs").status_code == 401
    headers = {"Authorization": f"Bearer {variables['TORCHYARD_TOKEN']}"}

    def states() -> list[str]:
        answer = httpx2.get(f"{_url(stack)}/v1/workers", headers=headers).raise_for_status()
        return [worker["state"] for worker in answer.json()["data"]]

    until(lambda: states() == ["ready"], what="the worker is ready", context=lambda: stack.log("worker-cpu"))
    assert stack.stop_all() == [0, 0, 0, 0]


@pytest.mark.thorough
def test_the_declared_services_run_a_job_and_requeue_it_when_their_worker_is_stopped(
    stack: Stack, variables: dict[str, str], tmp_path: Path
) -> None:
    _start(stack, variables)
    code = tmp_path / "code"
    (code / "train.py").write_text(GATED)
    headers = {"Authorization": f"Bearer {variables['TORCHYARD_TOKEN']}"}
    with httpx2.Client(base_url=_url(stack), headers=headers, timeout=30) as http:
        spec = {"trainer": "script", "config": {"code": f"file://{code}"}, "max_restarts": 0}
        job = f"/v1/jobs/{http.post('/v1/jobs', json=spec).raise_for_status().json()['id']}"
        until(
            lambda: bool(http.get(f"{job}/metrics").json()["data"]),
            what="the job trains",
            context=lambda: stack.log("worker-cpu"),
        )
        assert stack.stop("worker-cpu") == 0
        assert http.get(job).json()["state"] == "queued"
        os.utime(tmp_path / "volumes" / "worker-cpu" / "worker.json", (0, 0))
        assert not stack.healthy("worker-cpu")
        (code / "gate").touch()
        stack.start("worker-cpu")
        until(lambda: http.get(job).json()["state"] not in {"queued", "starting", "running"}, what="the job ends")
        done = http.get(job).json()
        assert (done["state"], done["attempt"], done["error"]) == ("succeeded", 2, None)
        latest = http.get(f"{job}/checkpoints/latest").json()
        file = http.get(f"{job}/checkpoints/latest/download").raise_for_status().content
    assert hashlib.sha256(file).hexdigest() == latest["sha256"]
    import torch

    assert torch.load(io.BytesIO(file), weights_only=True)["step"] == latest["step"]
    assert stack.stop_all() == [0, 0, 0]


def _start(stack: Stack, variables: dict[str, str]) -> None:
    """Migrates the database, and starts the API, a worker and a controller."""
    _check_redis(stack.environment("api")["TORCHYARD_REDIS_URL"], variables["REDIS_PASSWORD"])
    migrated = stack.run("migrate")
    assert migrated.returncode == 0, migrated.stderr
    assert not stack.healthy("worker-cpu")
    stack.start("api")
    stack.start("worker-cpu")
    assert not stack.healthy("controller")
    stack.start("controller")


def _url(stack: Stack) -> str:
    return f"http://127.0.0.1:{stack.environment('api')['TORCHYARD_PORT']}"


def _check_redis(url: str, password: str) -> None:
    """Checks that Redis is durable and requires the password."""
    with Redis.from_url(url) as redis:
        held = {name: redis.config_get(name)[name] for name in ("appendonly", "appendfsync", "maxmemory-policy")}
    assert held == {"appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction"}
    with Redis.from_url(url.replace(password, "")) as redis, pytest.raises(AuthenticationError):
        redis.ping()


def _initialise(postgresql: PostgreSQLServer, environment: dict[str, str]) -> None:
    """Initializes a volume as the image does: the superuser, the database and the password of the variables."""
    with psycopg.connect(postgresql.conninfo, autocommit=True) as connection:
        user, database = sql.Identifier(environment["POSTGRES_USER"]), sql.Identifier(environment["POSTGRES_DB"])
        password = sql.Literal(environment["POSTGRES_PASSWORD"])
        connection.execute(sql.SQL("CREATE ROLE {} SUPERUSER LOGIN PASSWORD {}").format(user, password))
        connection.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(database, user))
        rules = connection.execute("SHOW hba_file").fetchone()
        assert rules is not None
        Path(rules[0]).write_text("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n")
        connection.execute("SELECT pg_reload_conf()")


def _free_ports(*wanted: int) -> dict[int, int]:
    """Returns a free port of this host for each of `wanted`."""
    ports = set[int]()
    while len(ports) < len(wanted):
        ports.add(free_port())
    return dict(zip(wanted, ports, strict=True))


def _leaves_nothing(folder: Path) -> None:
    left = processes_naming(folder)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left
