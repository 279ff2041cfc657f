"""The command `join`, and the environment that it makes of what the service serves."""

from collections.abc import Generator
import os
from pathlib import Path
import signal
import stat
import subprocess
import sys

import pytest
from uv import find_uv_bin

from api.installs.wheels import InstallFile, InstallFiles, Installs
from tests.api.service import TOKEN
from tests.controller.notifications.certificates import certificate
from tests.databases import SQLiteDatabases
from tests.e2e.service import until
from tests.torchyard.cli.invocation import environment, run_in_process
from tests.torchyard.cli.service import Team, serving_team
from tests.torchyard.client.fake_server import Answer, FakeServer, serving
from torchyard.cli.up import installing, remote
from torchyard.client import Client
from torchyard.contract.errors import ConfigError
from torchyard.contract.installs import FileDigest, InstallDigests
from torchyard.host import trust
from torchyard.host.joined import JOINED_FILE, Joined, load, save

EMPTY_LOCK = InstallFile.of("requirements.lock", b"# nothing\n")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, sqlite: SQLiteDatabases) -> Generator[Team]:
    with serving_team(tmp_path_factory.mktemp("secured"), sqlite, tls=True) as team:
        yield team


def code_for(secured: Team, kind: str) -> str:
    with Client(secured.url, TOKEN, certificate=trust.fetch_certificate(secured.url)) as client:
        return (client.workers.code if kind == "worker" else client.users.code)("admin").code


def test_a_machine_joins_once_and_prints_a_unit_that_starts_it(secured: Team, tmp_path: Path) -> None:
    data, plain = tmp_path / "data", environment(None, "")
    given = ["--data-dir", str(data), "--cpu-slots", "2", "--systemd"]
    refused = run_in_process(["join", *given], plain)
    assert refused.returncode == 1 and "workers add NAME" in refused.stderr
    code = code_for(secured, "worker")
    done = run_in_process(["join", secured.url, "--code", code, *given], plain)
    assert done.returncode == 0, done.stderr
    start = f"ExecStart={sys.executable} -P -m torchyard join --data-dir={data} --cpu-slots=2"
    assert start in done.stdout.splitlines()
    assert f"Python {sys.version.split()[0]}" in done.stderr and "CPUs" in done.stderr
    joined = load(data / JOINED_FILE)
    assert stat.S_IMODE((data / JOINED_FILE).stat().st_mode) == 0o600
    assert (joined.url, joined.name, joined.token in done.stderr + done.stdout) == (secured.url, "admin", False)
    again = run_in_process(["join", *given], plain)
    assert (again.returncode, again.stdout) == (0, done.stdout), "without a code, and without the address"
    used = run_in_process(["join", secured.url, "--code", code, *given], plain)
    assert used.returncode == 4 and "the code was used" in used.stderr
    other = run_in_process(["join", "https://elsewhere:1", *given], plain)
    assert other.returncode == 1 and f"has joined {secured.url}" in other.stderr
    assert load(data / JOINED_FILE) == joined


def test_a_code_for_a_user_and_the_data_of_a_service_are_refused(secured: Team, tmp_path: Path) -> None:
    plain = environment(None, "")
    wrong = run_in_process(
        ["join", secured.url, "--code", f"user.ca.{'s' * 32}", "--data-dir", str(tmp_path / "data")], plain
    )
    assert wrong.returncode == 1 and "a code for a user" in wrong.stderr
    (tmp_path / "torchyard.db").touch()
    code = f"worker.ca.{'s' * 32}"
    owned = run_in_process(["join", secured.url, "--code", code, "--data-dir", str(tmp_path)], plain)
    assert owned.returncode == 1 and "is the data directory of a service" in owned.stderr


@pytest.fixture
def service(tmp_path: Path) -> Generator[FakeServer]:
    _, context = certificate(tmp_path, "box-a")
    with serving() as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        yield server


@pytest.fixture
def joined(service: FakeServer, tmp_path: Path) -> Joined:
    return Joined(
        url=f"https://127.0.0.1:{service.server_port}",
        worker_id=f"wrk_{'0' * 32}",
        name="box-b",
        token="tyw_x",
        certificate=(tmp_path / "certificate.pem").read_text(),
    )


def test_an_environment_has_the_services_wheels_and_those_of_other_digests_are_not_used(
    service: FakeServer, joined: Joined, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV", find_uv_bin())
    made, root = InstallFiles().get(), tmp_path / "data"
    root.mkdir()
    digests = serve(service, made)
    service.on(digests.server.path, Answer(made.client.content))
    with pytest.raises(ConfigError, match="does not match its digest"):
        installing.install(joined, root, digests, say=print)
    assert installing.newest(root) == Path(sys.executable)
    service.on(digests.server.path, Answer(made.server.content))
    python = installing.install(joined, root, digests, say=print)
    assert (installing.newest(root), installing.is_current(root, digests)) == (python, True)
    shown = "from importlib.metadata import version as v; print(v('torchyard'), v('torchyard-server'))"
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([str(python), "-P", "-c", shown], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.split() == [made.version, made.version]
    assert installing.lasting(root, python) == root / "environment" / "bin" / "python"
    changed = InstallDigests(client=digests.client, server=digests.server, lock=FileDigest(name="x", sha256="0" * 64))
    assert not installing.is_current(root, changed)


def serve(service: FakeServer, made: Installs) -> InstallDigests:
    """Serves the wheels with a lock that names nothing."""
    files = [FileDigest(name=file.name, sha256=file.sha256) for file in (made.client, made.server, EMPTY_LOCK)]
    for digest, file in zip(files, (made.client, made.server, EMPTY_LOCK), strict=True):
        service.on(digest.path, Answer(file.content))
    return InstallDigests(client=files[0], server=files[1], lock=files[2])


def test_an_update_starts_the_next_version_in_the_same_process_and_ctrl_c_ends_it(
    joined: Joined, tmp_path: Path
) -> None:
    data, log = tmp_path / "data", tmp_path / "log"
    data.mkdir(mode=0o700)
    save(data / JOINED_FILE, joined)
    command = [sys.executable, "-P", "-m", "torchyard", "join", "--data-dir", str(data), "--cpu-slots", "1"]
    env = {**environment(None, ""), "TORCHYARD_LAUNCHER": "torchrun"}
    with log.open("wb") as output, subprocess.Popen(command, env=env, stdout=output, stderr=output) as running:
        try:
            until(lambda: log.read_text().count("Ready.") == 1, what="it runs", context=log.read_text)
            until(lambda: remote.restart(data), what="it is told of the update")
            until(lambda: log.read_text().count("Ready.") == 2, what="it runs again", context=log.read_text)
            until((data / remote.PID_FILE).exists, what="it has begun")
            assert (data / remote.PID_FILE).read_text() == str(running.pid)
            running.send_signal(signal.SIGINT)
            assert running.wait(60) == 0, log.read_text()
        finally:
            running.kill()
    assert "Jobs continue" in log.read_text() and log.read_text().endswith("Stopped.\n")
    assert not remote.restart(data)
