"""`torchyard workers update` on a machine that has joined: its worker starts from what the service serves."""

from base64 import urlsafe_b64encode
from dataclasses import replace
import hashlib
from pathlib import Path
import signal
import subprocess
import sys
import sysconfig
from zipfile import ZipFile

import pytest
from uv import find_uv_bin

from api.installs.wheels import InstallFile, InstallFiles, Installs
from tests.api.service import TOKEN
from tests.databases import SQLiteDatabases
from tests.e2e.service import until
from tests.torchyard.cli.invocation import environment
from tests.torchyard.cli.service import serving_team
from torchyard.client import Client
from torchyard.host import trust

COUNTS = """#!/bin/sh
number=0
while [ ! -e "$0.end" ]; do
  number=$((number + 1))
  echo "line $number"
  sleep 0.2
done
"""


@pytest.mark.thorough  # the new environment compiles all that a worker imports
def test_a_job_goes_on_while_the_worker_starts_again_from_what_the_service_serves(
    sqlite: SQLiteDatabases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, data, log = tmp_path / "code", tmp_path / "data", tmp_path / "log"
    code.mkdir()
    (code / "run.sh").write_text(COUNTS)
    (code / "run.sh").chmod(0o755)
    files = replace(InstallFiles().get(), lock=lock_of_this_environment(tmp_path))

    def served(_: InstallFiles) -> Installs:
        return files

    monkeypatch.setattr(InstallFiles, "get", served)
    (tmp_path / "service").mkdir()
    with serving_team(tmp_path / "service", sqlite, tls=True) as team:
        certificate = trust.fetch_certificate(team.url)
        with Client(team.url, TOKEN, certificate=certificate) as client:
            given = ("--data-dir", str(data), "--cpu-slots", "1", "--allow-path", str(code))
            joining = ("join", team.url, "--code", client.workers.code("box-b").code)
            env = {**environment(None, ""), "TORCHYARD_LAUNCHER": "torchrun", "UV": find_uv_bin()}
            command = [sys.executable, "-P", "-m", "torchyard", *joining, *given]
            with log.open("wb") as output, subprocess.Popen(command, env=env, stdout=output, stderr=output) as running:
                try:
                    config = {"code": code.as_uri(), "command": "run.sh"}
                    job = client.submit({"trainer": "script", "config": config, "resources": {"device": "cpu"}})

                    def lines() -> list[str]:
                        return [line.text for line in client.jobs.logs(job.id) if line.stream == "stdout"]

                    def said() -> str:
                        return f"{log.read_text()}\n{(data / 'logs' / 'worker.log').read_text()}"

                    until(lambda: len(lines()) > 1, what="the first lines", context=said)
                    update = [sys.executable, "-P", "-m", "torchyard", "workers", "update", "--data-dir", str(data)]
                    subprocess.run(update, env=env, check=True, capture_output=True)
                    until(lambda: log.read_text().count("Ready.") == 2, what="the new version", context=said)
                    python = Path(f"/proc/{running.pid}/cmdline").read_bytes().split(b"\0")[0].decode()
                    assert Path(python).is_relative_to(data / "environments")
                    before = len(lines())
                    until(lambda: len(lines()) > before, what="lines that the new version sends", context=said)
                    (code / "run.sh.end").touch()
                    ended = client.wait(job.id)
                    assert (ended.state, ended.attempt) == ("succeeded", 1), said()
                    assert lines() == [f"line {number}" for number in range(1, len(lines()) + 1)]
                    running.send_signal(signal.SIGINT)
                    assert running.wait(60) == 0, said()
                finally:
                    running.kill()


def lock_of_this_environment(folder: Path) -> InstallFile:
    """Returns a lock of one package, by which an environment has the packages of the one that runs the tests."""
    wheel, info = folder / "packages-1-py3-none-any.whl", "packages-1.dist-info"
    content = {
        "packages.pth": f"{sysconfig.get_paths()['purelib']}\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: packages\nVersion: 1\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},sha256={_digest(text)},{len(text)}\n" for name, text in content.items())
    with ZipFile(wheel, "w") as archive:
        for name, text in {**content, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            archive.writestr(name, text)
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return InstallFile.of("requirements.lock", f"packages @ {wheel.as_uri()} --hash=sha256:{sha256}\n".encode())


def _digest(text: str) -> str:
    return urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
