"""The commands of "The first hour of a team" in docs/operating.md, as they stand there but for the port."""

from collections.abc import Generator
from contextlib import contextmanager
import os
from pathlib import Path
import re
import signal
import subprocess
import sys

from tests.e2e.service import is_running, processes_naming, until
from tests.servers import free_port
from torchyard.client import Client

DOCUMENT = Path(__file__).parents[2] / "docs" / "operating.md"


def test_the_first_hour_of_a_team_goes_as_documented(tmp_path: Path) -> None:
    up, *steps = _commands(port=free_port())
    environment = _environment(tmp_path)
    with _running(up, tmp_path, environment):
        script = "\n".join(["set -euo pipefail", *steps])
        done = subprocess.run(
            ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        with Client(data_dir=tmp_path / ".torchyard") as client:
            disabled = {user.name for user in client.users() if user.disabled_at is not None}
    assert "alice's private job" in done.stdout
    for owner in ("alice", "bob"):
        assert re.search(rf"^owner +{owner}\nvisibility +team$", done.stdout, re.MULTILINE)
    assert disabled == {"bob"}
    audit = done.stdout.rpartition("TIME ")[2]
    for entry in ("admin +user.disable", "admin +quota.set", "ada +worker.drain", "alice +job.submit"):
        assert re.search(rf" {entry} ", audit), audit


def _commands(*, port: int) -> list[str]:
    """Returns the section's blocks of commands, for a service on this port."""
    section = DOCUMENT.read_text().partition("### The first hour of a team\n")[2].partition("\n## ")[0]
    return [block.replace("8000", str(port)) for block in re.findall(r"^```sh\n(.*?)^```$", section, re.M | re.S)]


@contextmanager
def _running(command: str, folder: Path, environment: dict[str, str]) -> Generator[None]:
    """Runs the command that starts the service, and stops it as Ctrl-C does. No process may be left."""
    with (folder / "up.log").open("wb") as log:
        process = subprocess.Popen(
            ["bash", "-c", command], cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
        )

    def output() -> str:
        return (folder / "up.log").read_text()

    try:
        until(lambda: "Ready." in output() or not is_running(process.pid), what="the service is ready", context=output)
        assert is_running(process.pid), output()
        yield
    finally:
        os.killpg(process.pid, signal.SIGINT)
        code = process.wait(90)
        left = processes_naming(folder / ".torchyard")
        for pid in left:
            os.kill(pid, signal.SIGKILL)
    assert (code, left) == (0, []), output()


def _environment(folder: Path) -> dict[str, str]:
    plain = {key: value for key, value in os.environ.items() if not key.startswith("TORCHYARD_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**plain, "PATH": path, "XDG_CONFIG_HOME": str(folder / "config"), "TORCHYARD_LAUNCHER": "torchrun"}
