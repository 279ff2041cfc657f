"""The real process: `python -P -m api`."""

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
import os
from pathlib import Path
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import time

import httpx2
import psutil
import pytest

from tests.api.house import SPEC, TOKEN
from tests.databases import SQLiteDatabases
from tests.e2e.service import until
from torchyard.client import Client

_START_S = 60


@contextmanager
def serving(
    folder: Path, database_url: str, redis_url: str, **settings: object
) -> Generator[tuple[subprocess.Popen[bytes], str]]:
    """The API's process and its URL. Its log is `api.log` in `folder`."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    env = {
        **os.environ,
        "TORCHYARD_DATA_DIR": str(folder),
        "TORCHYARD_DATABASE_URL": database_url,
        "TORCHYARD_REDIS_URL": redis_url,
        "TORCHYARD_TOKEN": TOKEN,
        "TORCHYARD_PORT": str(port),
        **{f"TORCHYARD_{name.upper()}": str(value) for name, value in settings.items()},
    }
    url = f"http://127.0.0.1:{port}"
    with (folder / "api.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-P", "-m", "api"], env=env, cwd=folder, stdout=log, stderr=log)
    with process:
        try:
            deadline = time.monotonic() + _START_S
            while not _answers(url):
                assert process.poll() is None, (folder / "api.log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.05)
            yield process, url
        finally:
            process.kill()


def _answers(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/healthz", trust_env=False).status_code == 200
    except httpx2.TransportError:
        return False


def test_it_serves_the_client_and_ends_cleanly_on_a_signal(tmp_path: Path, database_url: str, redis_url: str) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        with serving(tmp_path, database_url, redis_url) as (process, url):
            with Client(url, TOKEN) as client:
                job = client.submit(SPEC)
                assert client.get(job.id) == job
                assert client.cancel(job.id).state == "cancelled"
                assert [event.seq for event in client.events(job.id)] == [1, 2]
                assert client.ready().status == "ok"
            process.send_signal(number)
            assert process.wait(30) == 0
    log = (tmp_path / "api.log").read_text()
    assert "Traceback" not in log
    assert "/v1/jobs" not in log  # no access log


def test_a_write_that_waits_for_sqlite_does_not_hold_up_the_end_for_long(
    tmp_path: Path, sqlite: SQLiteDatabases, redis_url: str
) -> None:
    with sqlite.migrated() as url, serving(tmp_path, url, redis_url) as (process, base):
        file = url.removeprefix("sqlite:///")
        with closing(sqlite3.connect(file, isolation_level=None)) as other, ThreadPoolExecutor(1) as pool:
            other.execute("BEGIN IMMEDIATE")
            headers = {"Authorization": f"Bearer {TOKEN}"}
            answer = pool.submit(httpx2.post, f"{base}/v1/jobs", json=SPEC, headers=headers, trust_env=False)
            api = psutil.Process(process.pid)
            until(lambda: file in [opened.path for opened in api.open_files()], what="the write waits")
            process.send_signal(signal.SIGTERM)
            assert process.wait(25) == 0
            assert answer.exception(25) is not None or answer.result().status_code == 503


def test_a_stream_that_is_too_large_is_answered_before_it_ends(
    tmp_path: Path, database_url: str, redis_url: str
) -> None:
    with serving(tmp_path, database_url, redis_url) as (_, url):
        headers = {"Authorization": f"Bearer {TOKEN}"}
        chunks = (b" " * 65_536 for _ in range(64))
        answer = httpx2.post(f"{url}/v1/jobs", content=chunks, headers=headers, trust_env=False)
        assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


def test_it_may_have_more_files_open_than_it_takes_connections(tmp_path: Path, redis_url: str) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1_000), hard))
    try:
        with serving(tmp_path, "", redis_url, max_connections=1_000) as (process, _):
            assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE)[0] > 2_000
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_without_a_token_it_says_so_and_ends(tmp_path: Path) -> None:
    env = {**os.environ, "TORCHYARD_DATA_DIR": str(tmp_path)}
    env.pop("TORCHYARD_TOKEN", None)
    argv = [sys.executable, "-P", "-m", "api"]
    done = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "TORCHYARD_TOKEN is not set" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("module", ["api.app", "api.__main__"])
def test_starting_it_loads_no_numpy(module: str) -> None:
    code = f"import sys, {module}; print(sorted({{'numpy', 'torch', 'pandas'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
