"""`torchyard up`, for real: its processes, its files, what it gives to whom, and how it ends.

What jobs live through is in tests/e2e, too.
"""

from collections.abc import Iterator
from dataclasses import dataclass
import os
from pathlib import Path
import signal
import stat
import subprocess
import sys
from typing import Any

import psutil
import pytest
from redis import Redis
from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError

from tests import forks
from tests.e2e.service import Service, is_running, newest_step, processes_naming, running, until
from tests.forked import run
from torchyard.cli.up import redis_server
from torchyard.cli.up.child import Child
from torchyard.contract.errors import ServerUnreachable
from torchyard.contract.jobs.views import JobView
from torchyard.contract.states import JobState
from torchyard.host.datadir import redis_password_file

forks.preload("torchyard.cli", "torchyard.cli.up.service")

UNSAVED = """
import os, time, torchyard
run = torchyard.init()
step = 0
while not (os.path.exists(os.path.join(os.path.dirname(__file__), "gate")) or run.should_stop()):
    step += 1
    run.log({"train/step": float(step)}, step=step)
    time.sleep(0.05)
"""
SHELLS_TOKEN = "the-token-of-another-server"
MAIL_PASSWORD = "the-password-of-the-mail-server"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The service of these tests, not started yet. When it has ended, no process of it may be left."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHYARD_TOKEN", SHELLS_TOKEN)
        patch.setenv("TORCHYARD_SMTP_PASSWORD", MAIL_PASSWORD)
        patch.setenv("TORCHYARD_URL", "http://another.example.com")
        service = Service(tmp_path_factory.mktemp("service"), slots=1, warm=False)
    yield service
    if _runs(service):
        assert service.stop() == 0
    assert service.processes() == []


@pytest.fixture
def service(shared: Service) -> Service:
    """A service whose parts may die, as they come back. It is started again if a test has killed all of it."""
    return _started(shared)


@dataclass(frozen=True)
class Restarted:
    """What a service and its job showed while the parts of the service were killed one after the other."""

    before: dict[str, Any]
    """What `server.json` said first."""
    after: dict[str, Any]
    """What it said when all parts were started again."""
    environments: dict[str, dict[str, str]]
    """Those of the parts that were started again. Those that were forked show that of the process that forked them."""
    adopted: JobView
    """The job, once the next worker had read more of it."""
    ended: JobView
    """The job at its end."""


@pytest.fixture(scope="module")
def restarted(shared: Service) -> Restarted:
    service = _started(shared)
    until(lambda: "controller" in service.server["processes"], what="the controller runs")
    before = service.server
    for pid in (before["pid"], *before["processes"].values()):
        assert before["token"] not in " ".join(_environ(pid).values())
    config = {"code": f"file://{service.code / 'unsaved'}", "command": "python", "args": ["train.py"]}
    job_id = service.submit_script("unsaved", UNSAVED, config=config, max_restarts=0).id
    until(lambda: service.client.jobs.metrics(job_id).data or None, what="the job has logged")
    for name, pid in before["processes"].items():
        os.kill(pid, signal.SIGKILL)
        until(lambda name=name, pid=pid: service.server["processes"][name] != pid, what=f"{name} is started again")
    after = service.server
    environments = {name: _environ(pid) for name, pid in after["processes"].items()}
    until(lambda: _is_ready(service), what="the service is ready again")
    seen = newest_step(service, job_id)
    until(lambda: newest_step(service, job_id) > seen, what="the next worker reads on")
    adopted = service.client.get(job_id).view
    (service.code / "unsaved" / "gate").touch()
    ended = service.wait(job_id, JobState.SUCCEEDED)
    return Restarted(before, after, environments, adopted, ended)


def test_its_files_are_the_owners_alone_and_it_is_found_by_them(service: Service) -> None:
    assert service.server.keys() == {"url", "token", "pid", "processes"}
    until(lambda: "controller" in service.server["processes"], what="the controller runs")
    assert service.server["processes"].keys() == {"api", "worker", "controller", "redis"}
    assert service.server["token"] == (service.data / "token").read_text()
    for path in (service.data / "server.json", service.data / "token", service.data / "redis" / "redis.sock"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    for path in (service.data, service.data / "redis"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700, path
    with service.client as client:
        assert client.ready().status == "ok"


def test_whatever_dies_comes_back_at_the_same_address(restarted: Restarted) -> None:
    before, after = restarted.before, restarted.after
    assert (after["url"], after["token"], after["pid"]) == (before["url"], before["token"], before["pid"])
    assert not {*after["processes"].values()} & {*before["processes"].values()}


def test_a_job_goes_on_when_all_parts_die(restarted: Restarted) -> None:
    """That the next service resumes it after a stop is shown by `test_own_service.py`."""
    assert (restarted.adopted.state, restarted.adopted.attempt) == (JobState.RUNNING, 1)
    assert (restarted.ended.state, restarted.ended.attempt) == (JobState.SUCCEEDED, 1)


def test_no_process_shows_the_token_and_only_the_api_gets_it(restarted: Restarted) -> None:
    token, variables = restarted.after["token"], restarted.environments
    assert variables["api"]["TORCHYARD_TOKEN"] == token
    for name in ("worker", "controller", "redis"):
        text = " ".join(variables[name].values())
        assert token not in text and SHELLS_TOKEN not in text, name
    assert [name for name, own in variables.items() if MAIL_PASSWORD in own.values()] == ["controller"]
    assert not [name for name in variables["redis"] if name.startswith("TORCHYARD_")]
    assert not {"TORCHYARD_HOST", "TORCHYARD_PORT"} & variables["worker"].keys()
    assert not {"TORCHYARD_ALLOW_PATHS", "TORCHYARD_CPU_SLOTS", "TORCHYARD_UMASK"} & variables["api"].keys()


def test_redis_lets_in_only_who_knows_the_password(service: Service) -> None:
    path = service.data / "redis" / "redis.sock"
    for user in ("", "default:@", "torchyard:wrong@"):
        with Redis.from_url(f"unix://{user}{path}") as stranger, pytest.raises(AuthenticationError):
            stranger.ping()
    for file in (redis_password_file(service.data / "redis"), service.data / "redis" / "users.acl"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(_password(service)) >= 43  # 256 bits


@pytest.mark.parametrize(
    "command",
    [
        *("SCRIPT FLUSH", "CONFIG GET *", "ACL LIST", "SHUTDOWN", "DEBUG SLEEP 0"),
        *("FLUSHALL", "KEYS *", "SAVE", "MODULE LIST", "REPLICAOF NO ONE", "CLIENT LIST", "MONITOR", "GET other"),
        *("ZADD other 1 a", "PUBLISH other a", "DEL torchyard:queue"),
    ],
)
def test_redis_does_only_what_the_service_needs(service: Service, command: str) -> None:
    with _redis(service) as redis, pytest.raises(NoPermissionError):
        redis.execute_command(*command.split())  # pyright: ignore[reportUnknownMemberType]


@pytest.mark.parametrize("command", ["'GET', 'other'", "'CONFIG', 'GET', '*'", "'FLUSHALL'", "'PUBLISH', 'other', 'a'"])
def test_a_script_in_redis_does_no_more(service: Service, command: str) -> None:
    with _redis(service) as redis, pytest.raises(ResponseError, match=r"can.t (run|access|publish)|not allowed"):
        redis.eval(f"return redis.call({command})", 0)


def test_the_password_of_redis_is_in_no_command_line_and_no_log(service: Service) -> None:
    processes = [psutil.Process(pid) for pid in (service.server["pid"], *service.server["processes"].values())]
    shown = " ".join(part for process in processes for part in process.cmdline())
    logs = [service.data.parent / "up.log", *(service.data / "logs").iterdir()]
    assert _password(service) not in shown + "".join(path.read_text() for path in logs)


def test_a_second_one_is_refused(service: Service, tmp_path: Path) -> None:
    done = _up("--port", "0", "--data-dir", str(service.data))
    assert done.returncode == 1
    assert service.server["url"] in done.stderr and str(service.server["pid"]) in done.stderr
    port = service.server["url"].rpartition(":")[2]
    done = _up("--port", port, "--data-dir", str(tmp_path / "other"))
    assert done.returncode == 1
    assert f"port {port} is taken" in done.stderr
    assert "Traceback" not in done.stderr
    assert processes_naming(tmp_path / "other") == []


def test_a_taken_port_is_said_before_anything_is_built_or_started(service: Service, tmp_path: Path) -> None:
    port = service.server["url"].rpartition(":")[2]
    root = Path(__file__).parents[3]
    made = subprocess.run(
        ["make", "up", f"PORT={port}"], cwd=root, capture_output=True, text=True, check=False, timeout=120
    )
    assert made.returncode != 0
    assert f"port {port} is taken" in made.stderr and "page" not in made.stdout
    checked = _up("--check", "--data-dir", str(tmp_path / "data"), TORCHYARD_PORT=port)
    assert checked.returncode == 1
    assert f"port {port} is taken" in checked.stderr
    assert "in use by another" in _up("--check", "--port", "0", "--data-dir", str(service.data)).stderr
    assert _up("--check", "--port", "0", "--data-dir", str(tmp_path / "data")).returncode == 0
    assert [*tmp_path.iterdir()] == []


def test_killed_it_takes_its_children_along_and_leaves_its_folder_to_the_next_one(service: Service) -> None:
    """That the next one serves is shown by `test_own_service.py`."""
    assert service.server["pid"] in service.processes()
    assert service.stop(signal.SIGKILL) == -signal.SIGKILL
    until(lambda: service.processes() == [], what="its children have ended")
    assert _up("--check", "--port", "0", "--data-dir", str(service.data)).returncode == 0


@pytest.mark.thorough
def test_a_second_ctrl_c_kills(tmp_path: Path) -> None:
    service = Service(tmp_path, slots=1, warm=False)
    service.start()
    up, worker = service.server["pid"], service.server["processes"]["worker"]
    os.kill(worker, signal.SIGSTOP)  # it will not stop when it is asked to
    os.kill(up, signal.SIGINT)
    until(lambda: "Ctrl-C again" in (tmp_path / "up.log").read_text(), what="the service is stopping")
    assert service.stop() not in {0, -signal.SIGINT}
    until(lambda: service.processes() == [], what="nothing is left")
    assert not (service.data / "server.json").exists()


@pytest.mark.thorough
def test_a_deep_data_directory_has_its_socket_elsewhere(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 60) / ("e" * 60)
    folder.mkdir(parents=True)
    with running(Service(folder, slots=1, warm=False)) as service:
        socket = redis_server.socket_in(service.data / "redis")
        assert not socket.is_relative_to(service.data) and socket.is_socket()
        assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
        with service.client as client:
            assert client.ready().redis == "ok"
    assert not socket.parent.exists()


@pytest.mark.parametrize(
    ("option", "url", "told"),
    [
        pytest.param(
            "--database", "sqlite:////nowhere/at/all.db", "unable to open database file", marks=pytest.mark.thorough
        ),
        pytest.param(
            "--database", "postgresql://ada:s3cret@127.0.0.1:1/torchyard", "port 1 failed", marks=pytest.mark.thorough
        ),
        pytest.param(
            "--database",
            "mysql://ada:s3cret@box/torchyard",
            "expected sqlite:////path/to/file.db or postgresql://",
            marks=pytest.mark.thorough,
        ),
        ("--redis", "http://:s3cret@box", "expected redis://"),
    ],
)
def test_a_part_that_cannot_start_is_told_with_its_last_words(tmp_path: Path, option: str, url: str, told: str) -> None:
    done = _up("--port", "0", "--data-dir", str(tmp_path / "data"), option, url)
    assert done.returncode == 1
    assert told in done.stderr
    assert "s3cret" not in done.stderr
    assert "Traceback" not in done.stderr
    assert processes_naming(tmp_path) == []


@pytest.mark.thorough
def test_why_a_part_ends_again_and_again_is_said(tmp_path: Path) -> None:
    environ = {**os.environ, "TORCHYARD_LAUNCHER": "foo"}
    command = [sys.executable, "-P", "-m", "torchyard.cli", "up", "--port", "0", "--data-dir", str(tmp_path / "data")]
    with subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as up:
        assert up.stderr is not None
        said: list[str] = []
        for line in up.stderr:
            said.append(line)
            if "TORCHYARD_LAUNCHER" in line or "starts again in 2 s" in line:
                up.send_signal(signal.SIGINT)
        assert "  TORCHYARD_LAUNCHER: must be auto or torchrun\n" in said
    assert up.returncode == 0


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("print('2026-01-02 03:04:05,678 ERROR the disk is gone\\n2026-01-02 INFO bye')", "the disk is gone"),
        ("raise KeyError('x')", "KeyError: 'x'"),
        ("print('ready')", None),
    ],
)
def test_the_last_error_of_a_child_is_of_its_newest_process(tmp_path: Path, program: str, error: str | None) -> None:
    log = tmp_path / "a.log"
    log.write_text("2026-01-02 03:04:05,678 ERROR an old one\n")
    child = Child("a", [sys.executable, "-c", program], env={}, log=log, keep=os.open(tmp_path, os.O_RDONLY))
    child.start()
    until(lambda: child.died() is not None, what="its end")
    assert child.last_error() == error


def _redis(service: Service) -> Redis:
    path = service.data / "redis" / "redis.sock"
    return Redis(unix_socket_path=str(path), username="torchyard", password=_password(service))


def _password(service: Service) -> str:
    return redis_password_file(service.data / "redis").read_text()


def _environ(pid: int) -> dict[str, str]:
    return psutil.Process(pid).environ()


def _started(service: Service) -> Service:
    if not _runs(service):
        service.start()
    return service


def _is_ready(service: Service) -> bool:
    try:
        with service.client as client:
            return client.ready().status == "ok" and any(worker.state == "ready" for worker in client.workers.list())
    except ServerUnreachable:
        return False


def _runs(service: Service) -> bool:
    try:
        return is_running(service.server["pid"])
    except FileNotFoundError:
        return False


def _up(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return run("torchyard.cli", "up", *arguments, env={**os.environ, **variables}, cwd=Path.cwd())
