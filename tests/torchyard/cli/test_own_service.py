"""The service of one user on one machine, which `run` starts where no server is known."""

from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
import json
import os
from pathlib import Path
import pwd
import re
import stat

import psutil
import pytest

from tests.e2e.service import until
from tests.torchyard.cli.invocation import environment, run_in_process, run_process
from torchyard.cli.up import own
from torchyard.cli.up.idle import Idleness
from torchyard.client import Client
from torchyard.client.discovery import is_any_known
from torchyard.client.logins import Login, Logins, write_logins
from torchyard.contract.attempts.rundir import Env
from torchyard.contract.errors import ConfigError, Unavailable
from torchyard.contract.states import JobState
from torchyard.host import device_locks
from worker.devices.inventory import Device, lock_devices

STOPPED_ONCE = """
import os, time
while os.environ["TORCHYARD_ATTEMPT"] == "1":
    time.sleep(0.05)
print("attempt", os.environ["TORCHYARD_ATTEMPT"])
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """The folder of a user's data. Nothing that was started in it is left."""
    yield tmp_path / "share"
    found = psutil.process_iter(["cmdline"])
    left = [process for process in found if str(tmp_path) in " ".join(process.info["cmdline"] or ())]
    _, alive = psutil.wait_procs(left, timeout=60)
    for process in alive:
        process.kill()
    assert alive == []


@contextmanager
def gpu_of_another_worker(data: Path) -> Generator[None]:
    """A GPU that another worker of this host holds, as its lock says."""
    gpu = Device(0, f"GPU-stand-in-{os.getpid()}", "stand-in", "cuda")
    try:
        with lock_devices([gpu], data):
            yield
    finally:
        device_locks.path_of(gpu.uuid).unlink()


def test_a_program_runs_where_no_server_is_known(home: Path, tmp_path: Path) -> None:
    """Two commands at once start one service; it is found from another folder, ended by `down`, and not used later.

    A job that runs when it is ended is resumed by the next one.
    """
    env = {
        **environment(None, ""),
        "XDG_DATA_HOME": str(home),
        "TORCHYARD_CPU_SLOTS": "1",
        "TORCHYARD_LAUNCHER": "torchrun",
    }
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
        (folder / "main.py").write_text("open('model.pt', 'w').write('x'); print('it runs')")
    command = ["run", "--", "python", "main.py"]  # a launcher would import torch
    with gpu_of_another_worker(tmp_path), ThreadPoolExecutor() as pool:
        started = [pool.submit(run_process, command, env, cwd=folder) for folder in folders]
        done = [each.result() for each in started]
    whose = (
        f"1 GPU of this machine: in use by the worker of {pwd.getpwuid(os.getuid()).pw_name} (pid {os.getpid()}, data"
    )
    assert any(f"{whose} in {tmp_path})" in each.stderr for each in done)
    for each in done:
        assert (each.returncode, each.stdout) == (0, "rank 0 | it runs\n"), each.stderr
        assert "Starting one on this machine" in each.stderr and "Following its log. Ctrl-C" in each.stderr
        assert re.search(r"^stored model\.pt\. Download: .*torchyard cp job_\w+:model\.pt \.$", each.stderr, re.M), (
            each.stderr
        )
        assert "/#code=" in each.stderr or "The web page is not built" in each.stderr
    data = home / "torchyard"
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    shown = json.loads(run_process(["status", "--json"], env, cwd=tmp_path).stdout)
    assert (shown["data_dir"], shown["running"], shown["queued"]) == (str(data), 0, 0)
    assert shown["url"].startswith("http://127.0.0.1:") and not shown["url"].endswith(":8000")
    assert len(json.loads(run_process(["ps", "--json"], env, cwd=tmp_path).stdout)) == 2
    (tmp_path / "torch.py").write_text("raise ImportError")  # tests/worker/test_doctor.py has the true one
    examined = run_process(["doctor"], env | {"PYTHONPATH": str(tmp_path)}, cwd=tmp_path).stdout
    assert f"{data}: " in examined and "one did its duties" in examined, examined
    _check_that_a_schedule_is_use(shown["url"], (data / "token").read_text())
    (folders[0] / "main.py").write_text(STOPPED_ONCE)
    held = run_process(["run", "-d", "--", "python", "main.py"], env, cwd=folders[0]).stdout.strip()
    with Client(shown["url"], (data / "token").read_text()) as client:
        until(lambda: client.get(held).state is JobState.RUNNING, what="the job runs")
    ended = run_process(["down"], env, cwd=tmp_path)
    assert (ended.stdout, ended.stderr) == (
        f"stopped {data}\n",
        "Stopped: 1 running job, 1 schedule. They continue after the next start.\n",
    )
    assert run_process(["status"], env, cwd=tmp_path).returncode == 1
    _check_that_it_ends_when_nobody_uses_it(data, shown["url"], env, held=held)
    assert run_process(["down"], env, cwd=tmp_path).stdout == f"no service uses {data}\n"


def _check_that_it_ends_when_nobody_uses_it(data: Path, url: str, env: Mapping[str, str], *, held: str) -> None:
    """Starts it again for as long as it has a schedule. The job `held` ends in it."""
    again = json.loads(run_process(["up", "--detach", "--end-when-idle", "1s", "--json"], env).stdout)
    assert (again["url"], again["data_dir"]) == (url, str(data))
    assert "schedules 1\nIt keeps running while it has schedules" in run_process(["status"], env).stdout
    with Client(url, (data / "token").read_text()) as client:
        job = client.get(held)
        job.wait()
        ended = job.refresh()
        assert (ended.state, ended.attempt) == (JobState.SUCCEEDED, 2)
        assert [line.text for line in job.logs()] == ["attempt 2"]
        (schedule,) = client.schedules.list()
        client.schedules.delete(schedule.id)
    until(lambda: own.find(data) is None, what="the end of the service")
    assert "the service was not used" in (data / "logs" / "up.log").read_text()
    until(lambda: not own.is_held(data), what="the end of its programs")


def _check_that_a_schedule_is_use(url: str, token: str) -> None:
    idleness = Idleness(url, token, limit_s=0.0)
    assert idleness.is_over()
    nightly = {"trainer": "script", "config": {"code": "file:///code"}, "schedule": {"cron": "0 3 * * *"}}
    with Client(url, token) as client:
        schedule = client.schedules.create(nightly)
        assert not idleness.is_over()
        client.schedules.pause(schedule.id)
        assert idleness.is_over()
        client.schedules.resume(schedule.id)


def test_a_duration_that_is_none_is_refused_and_starts_nothing(home: Path) -> None:
    env = {**environment(None, ""), "XDG_DATA_HOME": str(home)}
    for more in ([], ["--detach"]):
        refused = run_in_process(["up", *more, "--end-when-idle", "soon"], env)
        assert refused.returncode == 2
        assert "--end-when-idle" in refused.stderr and "15m" in refused.stderr
    assert not home.exists()


def test_a_server_that_is_named_keeps_another_from_being_started(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("TORCHYARD_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(home))
    assert not is_any_known()
    monkeypatch.setenv("TORCHYARD_URL", "http://127.0.0.1:1")
    assert is_any_known()
    monkeypatch.delenv("TORCHYARD_URL")
    write_logins(Logins().adding("team", Login(url="http://127.0.0.1:1", token="t")))
    assert is_any_known()


def test_no_service_is_started_in_a_job_or_on_a_network_disk(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def on_nfs(_: Path) -> str:
        return "nfs4"

    monkeypatch.setattr(own, "file_system", on_nfs)
    with pytest.raises(ConfigError, match="network disk"):
        own.start(home / "torchyard")
    monkeypatch.setenv(Env.JOB_ID, "job_1")
    with pytest.raises(ConfigError, match="TORCHYARD_URL"):
        own.start(home / "torchyard")
    assert not home.exists()


def test_the_caller_works_while_the_service_starts(home: Path) -> None:
    """`run` loads its client meanwhile: before it is known whether the service starts, as here it does not."""
    called: list[str] = []
    with pytest.raises(Unavailable, match="the service did not start"):
        own.start(home / "torchyard", options=("--no-such-option",), meanwhile=lambda: called.append("once"))
    assert called == ["once"]
