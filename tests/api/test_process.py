"""The real process: `python -P -m api`."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
import os
from pathlib import Path
import resource
import signal
import sqlite3
import subprocess
import sys

import httpx2
import psutil
import pytest

from tests import forked
from tests.api.service import SPEC, TOKEN
from tests.api.serving import api_process, api_program, api_thread
from tests.databases import SQLiteDatabases
from tests.e2e.service import until
from torchyard.client import Client


def test_it_serves_the_client_and_ends_with_exit_code_0_on_sigterm(
    tmp_path: Path, database_url: str, redis_url: str
) -> None:
    with api_process(tmp_path, database_url, redis_url) as (process, url):
        with Client(url, TOKEN) as client:
            job = client.submit(SPEC)
            assert client.get(job.id).view == job.view
            assert client.jobs.cancel(job.id).state == "cancelled"
            assert [event.seq for event in client.jobs.events(job.id)] == [1, 2]
            assert client.ready().status == "ok"
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
    log = (tmp_path / "api.log").read_text()
    assert "Traceback" not in log
    assert "/v1/jobs" not in log  # no access log


@pytest.mark.thorough
def test_a_write_that_waits_for_sqlite_delays_the_shutdown_only_briefly(
    tmp_path: Path, sqlite: SQLiteDatabases, redis_url: str
) -> None:
    with sqlite.migrated() as url, api_process(tmp_path, url, redis_url) as (process, base):
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


def test_a_chunked_body_above_the_limit_is_refused_before_its_end(
    tmp_path: Path, database_url: str, redis_url: str
) -> None:
    with api_thread(tmp_path, database_url, redis_url) as url:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        chunks = (b" " * 65_536 for _ in range(64))
        answer = httpx2.post(f"{url}/v1/jobs", content=chunks, headers=headers, trust_env=False)
        assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


@pytest.mark.thorough
def test_it_raises_its_limit_on_open_files_and_ends_with_exit_code_0_on_sigint(tmp_path: Path, redis_url: str) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1_000), hard))
    try:
        with api_program(tmp_path, "", redis_url, max_connections=1_000) as (process, _):
            assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE)[0] > 2_000
            process.send_signal(signal.SIGINT)
            assert process.wait(120) == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_without_a_token_it_ends_with_an_error(tmp_path: Path) -> None:
    env = {**os.environ, "TORCHYARD_DATA_DIR": str(tmp_path)}
    env.pop("TORCHYARD_TOKEN", None)
    done = forked.run("api", env=env, cwd=tmp_path)
    assert done.returncode == 1
    assert "TORCHYARD_TOKEN is not set" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.thorough
def test_beyond_loopback_it_refuses_a_short_token(tmp_path: Path) -> None:
    env = {
        **os.environ,
        "TORCHYARD_DATA_DIR": str(tmp_path / "data"),
        "TORCHYARD_HOST": "0.0.0.0",
        "TORCHYARD_TOKEN": "easy-to-guess",
    }
    argv = [sys.executable, "-P", "-m", "api"]
    done = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "the token in TORCHYARD_TOKEN has 13 characters" in done.stderr and "32 or more" in done.stderr
    assert "easy-to-guess" not in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.thorough
def test_the_process_starts_without_numpy() -> None:
    code = "import sys, api.__main__; print(sorted({'numpy', 'torch', 'pandas'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
