"""Plain `ssh`, `scp` and `rsync` into a job, by the block that `ssh-config` prints."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
import os
from pathlib import Path
import shutil
import socket
import subprocess
import sys
import tarfile
import threading
from typing import IO

import pytest

from tests.servers import free_port
from tests.torchyard.cli.invocation import run_in_process
from tests.torchyard.cli.reach.test_programs import environment_of
from tests.torchyard.client.reaching.peer import Peer, peer

pytestmark = pytest.mark.skipif(shutil.which("ssh") is None, reason="openssh-client is not installed")

HOST = "job_1.torchyard"
STARTS_A_SERVER = """
set -e
cd {folder}
cat > server.py <<'END'
import http.server, os
os.chdir("server")
server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
print(server.server_port, flush=True)
server.serve_forever()
END
tar xf server.tar
exec 3< <(exec {python} server.py 2> server.log)
read -r port <&3
echo "$port"
cat > end
"""
"""What an editor has the shell of its job do: it goes on until its input ends."""


@dataclass(frozen=True)
class Ssh:
    """The programs of OpenSSH, with the printed block as all their settings."""

    folder: Path
    environment: dict[str, str]

    def run(self, *words: str, stdin: bytes = b"", program: str = "ssh") -> subprocess.CompletedProcess[bytes]:
        command = [program, "-F", str(self.folder / "config"), *words]
        return subprocess.run(command, env=self.environment, input=stdin, capture_output=True, check=False, timeout=60)

    @contextmanager
    def started(self, *words: str) -> Generator[subprocess.Popen[bytes]]:
        """Runs ssh until the end of the block, where its input ends."""
        command = ["ssh", "-T", "-F", str(self.folder / "config"), "-o", "ExitOnForwardFailure=yes", *words]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, env=self.environment, stdin=pipe, stdout=pipe) as program:
            try:
                yield program
            finally:
                _of(program.stdin).close()
                program.wait(60)


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


@pytest.mark.thorough
def test_a_terminal_of_ssh_has_its_size_and_ends_with_its_program(ssh: Ssh) -> None:
    done = ssh.run("-tt", HOST, stdin=b"stty size; tty -s && echo is a terminal; exit 4\n")
    assert (done.returncode, b"is a terminal" in done.stdout) == (4, True), done.stderr


@pytest.mark.thorough
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


def test_what_goes_by_a_proxy_of_ssh_reaches_ports_of_the_job_alone(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as own, socket.create_server(("127.0.0.1", 0)) as foreign:
        foreign.setblocking(False)
        with peer(own) as job:
            ssh, proxy, port = _ssh(job, tmp_path), free_port(), own.getsockname()[1]
            with ssh.started("-D", f"127.0.0.1:{proxy}", HOST, "echo ready; cat") as started:
                assert _of(started.stdout).readline() == b"ready\n"
                for host in ("localhost", "127.0.0.1"):
                    answering = threading.Thread(target=_answer, args=(own,))
                    answering.start()
                    assert _by_proxy(proxy, host, port) == b"here"
                    answering.join()
                assert _by_proxy(proxy, "localhost", foreign.getsockname()[1]) == b""
                assert _by_proxy(proxy, "127.0.0.2", port) == b""
                assert _by_proxy(proxy, "192.0.2.1", 80) == b""
            assert started.returncode == 0
        with pytest.raises(BlockingIOError):
            foreign.accept()


def test_no_port_of_the_job_leads_to_the_user(ssh: Ssh) -> None:
    back = ssh.run("-o", "ExitOnForwardFailure=yes", "-R", "0:localhost:1", HOST, "true")
    assert back.returncode != 0 and b"remote port forwarding failed" in back.stderr


@pytest.mark.thorough
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
        answering.join()


@pytest.mark.thorough
def test_the_agent_and_the_display_of_the_user_are_not_forwarded(ssh: Ssh, tmp_path: Path) -> None:
    agent = tmp_path / "agent"
    command = ["ssh-agent", "-D", "-a", str(agent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
        try:
            assert _of(running.stdout).readline()
            own = Ssh(tmp_path, {**ssh.environment, "SSH_AUTH_SOCK": str(agent), "DISPLAY": "127.0.0.1:99"})
            done = own.run("-v", "-A", "-Y", HOST, "grep -c asyncssh /proc/net/unix")
        finally:
            running.terminate()
    assert b"Requesting authentication agent forwarding" in done.stderr, done.stderr
    assert b"X11 forwarding request failed" in done.stderr, done.stderr
    assert done.stdout == b"0\n", "a socket of the agent is there"


@pytest.mark.thorough
def test_an_editor_brings_its_server_runs_it_and_reaches_it(ssh: Ssh, tmp_path: Path) -> None:
    folder, page, archive = tmp_path / "job", tmp_path / "page", tmp_path / "server.tar"
    folder.mkdir()
    page.write_text("an editor's page")
    with tarfile.open(archive, "w") as packed:
        packed.add(page, "server/page")
    done = ssh.run(str(archive), f"{HOST}:{folder}/", program="scp")
    assert done.returncode == 0, done.stderr
    proxy, local = free_port(), free_port()
    with ssh.started("-D", f"127.0.0.1:{proxy}", HOST, "bash", "-s") as first:
        _of(first.stdin).write(STARTS_A_SERVER.format(folder=folder, python=sys.executable).encode())
        _of(first.stdin).flush()
        port = int(_of(first.stdout).readline())
        asked = b"GET /page HTTP/1.0\r\n\r\n"
        assert _by_proxy(proxy, "127.0.0.1", port, asked).endswith(b"an editor's page")
        with ssh.started("-L", f"127.0.0.1:{local}:localhost:{port}", HOST, "echo ready; cat") as second:
            assert _of(second.stdout).readline() == b"ready\n"
            with socket.create_connection(("127.0.0.1", local)) as connection:
                assert _exchange(connection, asked).endswith(b"an editor's page")
    assert (first.returncode, second.returncode) == (0, 0)


def test_a_name_that_is_no_job_opens_no_file(ssh: Ssh) -> None:
    for name in ("../x", ".torchyard", "a/../../b"):
        done = run_in_process(["ssh-proxy", "--", f"{name}.torchyard"], ssh.environment)
        assert (done.returncode, "is not the name of a job" in done.stderr) == (1, True), name


def _answer(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.sendall(b"here")


def _by_proxy(proxy: int, host: str, port: int, sent: bytes = b"") -> bytes:
    """Returns what comes back from where a client of SOCKS 5 asks for; nothing if it is refused."""
    with socket.create_connection(("127.0.0.1", proxy), timeout=60) as connection:
        connection.sendall(b"\x05\x01\x00")
        assert connection.recv(2, socket.MSG_WAITALL) == b"\x05\x00"
        connection.sendall(b"\x05\x01\x00\x03" + bytes([len(host)]) + host.encode() + port.to_bytes(2, "big"))
        connection.recv(10, socket.MSG_WAITALL)
        return _exchange(connection, sent)


def _exchange(connection: socket.socket, sent: bytes) -> bytes:
    try:
        connection.sendall(sent)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))
    except ConnectionError:
        return b""


def _of(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream
