"""What `torchyard up` gives to whom, and what it refuses before it starts anything."""

from collections.abc import Generator
import os
from pathlib import Path
import signal
import stat
import subprocess
import sys

import psutil
import pytest
from redis import Redis
from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError

from tests.approved import Approved
from tests.e2e.service import Service, running, until
from torchyard.host.datadir import redis_password_file

SHELLS_TOKEN = "the-token-of-another-server"
MAIL_PASSWORD = "the-password-of-the-mail-server"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[Service]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHYARD_TOKEN", SHELLS_TOKEN)
        patch.setenv("TORCHYARD_SMTP_PASSWORD", MAIL_PASSWORD)
        patch.setenv("TORCHYARD_URL", "http://another.example.com")
        with running(Service(tmp_path_factory.mktemp("service"), slots=1, warm=False)) as service:
            yield service


def test_no_process_shows_the_token_and_only_the_api_gets_it(service: Service) -> None:
    until(lambda: "controller" in service.server["processes"], what="the controller runs")
    forked = service.server["processes"]
    for pid in (service.server["pid"], *forked.values()):
        assert service.server["token"] not in " ".join(_environ(pid).values())
    for name in ("api", "worker", "controller"):
        os.kill(forked[name], signal.SIGKILL)  # what is started again shows its environment
        until(lambda name=name: service.server["processes"][name] != forked[name], what=f"{name} is started again")
    variables = {name: _environ(pid) for name, pid in service.server["processes"].items()}
    assert variables["api"]["TORCHYARD_TOKEN"] == service.server["token"]
    for name in ("worker", "controller", "redis"):
        text = " ".join(variables[name].values())
        assert service.server["token"] not in text and SHELLS_TOKEN not in text, name
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


@pytest.mark.parametrize("allowed", ["", "data/runs"])
def test_a_folder_around_or_in_the_data_directory_is_not_allowed_to_jobs(tmp_path: Path, allowed: str) -> None:
    runs, folder = tmp_path / "data" / "runs", tmp_path / allowed
    runs.mkdir(parents=True)
    done = _up(tmp_path / "data", "--allow-path", str(folder))
    assert done.returncode == 1
    assert str(folder) in done.stderr and f"the data directory {tmp_path / 'data'}" in done.stderr
    assert [*(tmp_path / "data").iterdir()] == [runs]


def test_beyond_loopback_a_short_token_is_refused_before_anything_is_changed(
    tmp_path: Path, approved: Approved
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "token").write_text("easy-to-guess")
    (data / "server.json").write_text("{}")
    done = _up(data, "--host", "0.0.0.0")
    assert done.returncode == 1
    assert done.stderr == approved("errors", data=data / "token")
    assert "easy-to-guess" not in done.stderr and "Traceback" not in done.stderr
    assert (data / "server.json").exists() and not (data / "lock").exists()


def _redis(service: Service) -> Redis:
    path = service.data / "redis" / "redis.sock"
    return Redis(unix_socket_path=str(path), username="torchyard", password=_password(service))


def _password(service: Service) -> str:
    return redis_password_file(service.data / "redis").read_text()


def _environ(pid: int) -> dict[str, str]:
    return psutil.Process(pid).environ()


def _up(data: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "torchyard.cli", "up", "--port", "0", "--data-dir", str(data), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
