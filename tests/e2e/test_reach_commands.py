"""The commands of docs/reach.md, as they stand there but for programs that only a GPU's machine has."""

from pathlib import Path
import shutil
import socket

import pytest

from tests.e2e.documented import ROOT, blocks, environment_in, run_blocks
from tests.e2e.service import Service, until
from tests.torchyard.cli.invocation import start_process
from torchyard.contract.states import JobState

PAGE = (ROOT / "docs" / "reach.md").read_text()
PROGRAM = """
import os, pathlib, socket, time
for name in ("out", "src", "run"):
    pathlib.Path(name).mkdir(exist_ok=True)
if os.environ["RANK"] != "0":
    time.sleep(3600)
listener = socket.socket(socket.AF_UNIX)
listener.bind("run/app.sock")
listener.listen()
pathlib.Path("out/model.pt").write_text("weights")
while True:
    with listener.accept()[0] as connection:
        connection.sendall(b"at a socket")
"""
SSH = """#!/bin/sh
exec {program} -F "$HOME/.ssh/config" "$@"
"""
"""OpenSSH takes the home of the user from the system, whatever HOME says."""


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("rsync") is None, reason="rsync is not installed")
@pytest.mark.parametrize("databases", ["sqlite"], ids=[pytest.HIDDEN_PARAM], indirect=True, scope="session")
def test_the_commands_of_the_page_reach_a_running_job(tmp_path: Path, shared_service: Service) -> None:
    environment = {**environment_in(tmp_path), "HOME": str(tmp_path)}
    environment["PATH"] = f"{tmp_path / 'bin'}:{environment['PATH']}"
    for folder in ("bin", ".ssh", "src", "code"):
        (tmp_path / folder).mkdir()
    for name in ("ssh", "scp"):
        (tmp_path / "bin" / name).write_text(SSH.format(program=shutil.which(name)))
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "code" / "train.py").write_text(PROGRAM)
    (tmp_path / "src" / "a.py").write_text("a = 1\n")
    client = shared_service.client
    login = f"torchyard login {shared_service.server['url']} --token-stdin < {shared_service.data / 'token'}"
    run_blocks([login, "cd code; torchyard run -d --name digits --devices 2 train.py"], tmp_path, environment)
    job = client.get("digits")
    until(lambda: job.refresh().state is JobState.RUNNING, what="the job runs")
    until(lambda: "model.pt" in run_blocks(["torchyard exec digits -- ls out"], tmp_path, environment), what="its file")
    programs, _, dev, ssh, _ = blocks(PAGE, "sh")
    typed = programs.replace("nvidia-smi", "true").replace("shell digits", "shell digits < /dev/null")
    run_blocks([typed, ssh.replace("ssh digits.torchyard", "ssh -n digits.torchyard true")], tmp_path, environment)
    assert (tmp_path / "out" / "model.pt").read_text() == "weights"
    assert (tmp_path / "model.pt").read_text() == "weights"
    assert "a.py" in run_blocks(["torchyard exec digits -- ls src"], tmp_path, environment)
    assert _said_at("./run/app.sock", environment) == b"at a socket"
    job.cancel(now=True)
    job.wait()
    first, of_job, *_ = dev.splitlines()
    run_blocks([f"{of_job} < /dev/null"], tmp_path, environment)
    assert "model.pt" in run_blocks(["torchyard exec digits -- ls out"], tmp_path, environment)
    client.get("digits").cancel(now=True)
    run_blocks([f"cd code; {first} < /dev/null"], tmp_path, environment)
    client.get("code").cancel(now=True)


def _said_at(place: str, environment: dict[str, str]) -> bytes:
    """Returns what a place of the job says, by a port of this machine."""
    with start_process(["forward", "digits", place], environment) as started:
        address, *_ = started.stdout.readline().split()
        port = int(address.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as connection:
            return connection.recv(100)
