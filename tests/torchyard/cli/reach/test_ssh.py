"""Plain `ssh`, `scp` and `rsync` into a job, by the block that `ssh-config` prints."""

from collections.abc import Iterator
from dataclasses import dataclass
import os
from pathlib import Path
import shutil
import socket
import subprocess
import threading

import pytest

from tests.torchyard.cli.invocation import run_in_process
from tests.torchyard.cli.reach.test_programs import environment_of
from tests.torchyard.client.reaching.peer import Peer, peer

pytestmark = pytest.mark.skipif(shutil.which("ssh") is None, reason="openssh-client is not installed")

HOST = "job_1.torchyard"


@dataclass(frozen=True)
class Ssh:
    """The programs of OpenSSH, with the printed block as all their settings."""

    folder: Path
    environment: dict[str, str]

    def run(self, *words: str, stdin: bytes = b"", program: str = "ssh") -> subprocess.CompletedProcess[bytes]:
        command = [program, "-F", str(self.folder / "config"), *words]
        return subprocess.run(command, env=self.environment, input=stdin, capture_output=True, check=False, timeout=60)


@pytest.fixture
def job() -> Iterator[Peer]:
    with peer() as other:
        yield other


@pytest.fixture
def ssh(job: Peer, tmp_path: Path) -> Ssh:
    return _ssh(job, tmp_path)


def _ssh(job: Peer, tmp_path: Path) -> Ssh:
    own = {**environment_of(job), "XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)}
    printed = run_in_process(["ssh-config"], own)
    assert printed.returncode == 0, printed.stderr
    assert "StrictHostKeyChecking yes" in printed.stdout
    (tmp_path / "config").write_text(printed.stdout)
    return Ssh(tmp_path, own)


def test_ssh_runs_a_program_in_the_job_and_copies_files(ssh: Ssh, tmp_path: Path) -> None:
    done = ssh.run(HOST, "cat; echo wrong >&2; exit 7", stdin=bytes(range(256)) * 1000)
    assert (done.returncode, done.stdout) == (7, bytes(range(256)) * 1000), done.stderr
    assert done.stderr == b"wrong\n"
    source, copied = tmp_path / "source", tmp_path / "copied"
    source.write_bytes(os.urandom(1 << 20))
    done = ssh.run(str(source), f"{HOST}:{copied}", program="scp")
    assert done.returncode == 0, done.stderr
    assert copied.read_bytes() == source.read_bytes()


def test_a_terminal_of_ssh_has_its_size_and_ends_with_its_program(ssh: Ssh) -> None:
    done = ssh.run("-tt", HOST, stdin=b"stty size; tty -s && echo is a terminal; exit 4\n")
    assert (done.returncode, b"is a terminal" in done.stdout) == (4, True), done.stderr


@pytest.mark.skipif(shutil.which("rsync") is None, reason="rsync is not installed")
def test_rsync_brings_a_folder_to_the_job(ssh: Ssh, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a b").write_text("text")
    shell = f"ssh -F {tmp_path}/config"
    command = ["rsync", "-a", "-e", shell, f"{source}/", f"{HOST}:{tmp_path}/copied/"]
    done = subprocess.run(command, env=ssh.environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "copied" / "a b").read_text() == "text"


def test_ssh_connects_to_ports_of_the_job_alone(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as own, socket.create_server(("127.0.0.1", 0)) as foreign:
        answering = threading.Thread(target=_answer, args=(own,))
        answering.start()
        with peer(own) as job:
            ssh = _ssh(job, tmp_path)
            done = ssh.run("-W", f"localhost:{own.getsockname()[1]}", HOST)
            assert (done.returncode, done.stdout) == (0, b"here"), done.stderr
            refused = ssh.run("-W", f"localhost:{foreign.getsockname()[1]}", HOST)
            assert refused.returncode != 0 and b"prohibited" in refused.stderr
            outside = ssh.run("-W", "192.0.2.1:80", HOST)
            assert outside.returncode != 0 and b"prohibited" in outside.stderr
            back = ssh.run("-o", "ExitOnForwardFailure=yes", "-R", "0:localhost:1", HOST, "true")
            assert back.returncode != 0 and b"remote port forwarding failed" in back.stderr
        answering.join()


def test_a_name_that_is_no_job_opens_no_file(ssh: Ssh) -> None:
    for name in ("../x", ".torchyard", "a/../../b"):
        done = run_in_process(["ssh-proxy", "--", f"{name}.torchyard"], ssh.environment)
        assert (done.returncode, "no job" in done.stderr) == (1, True), name


def _answer(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.sendall(b"here")
