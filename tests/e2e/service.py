"""A whole service of real processes for a test: `torchyard up` on a folder and a port of its own."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
import json
import os
from pathlib import Path
import signal
import subprocess
import sys
import time
from types import MappingProxyType
from typing import Any, TypeVar

from tests.chaos import job_processes
from tests.servers import free_port
from torchyard.client import Client
from torchyard.contract.jobs.views import JobView
from torchyard.contract.states import JobState
from worker.host import process

T = TypeVar("T")

DEADLINE_S = 120.0
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 0.25


class Service:
    """Started by `start`, stopped by `stop`; its data stays for the next `start`.

    Without addresses of a database and a Redis it has its own. `warm`: whether its worker keeps a warm process, which
    costs seconds of a processor. `prefix`: a command that runs another one. `python`: that of the environment.
    `command`: what runs in place of `python -m torchyard.cli up`, with the same options.
    """

    def __init__(
        self,
        folder: Path,
        *,
        slots: int = 2,
        database: str | None = None,
        redis: str | None = None,
        warm: bool = True,
        env: Mapping[str, str] = MappingProxyType({}),
        prefix: Sequence[str] = (),
        python: Path = Path(sys.executable),
        command: Sequence[str] = (),
    ) -> None:
        self.data = folder / "data"
        self.code = folder / "code"
        self.code.mkdir(exist_ok=True)
        self.database = database or f"sqlite:///{self.data / 'torchyard.db'}"
        self._slots = slots
        self._prefix = prefix
        self._command = [*command] or [str(python), "-P", "-m", "torchyard.cli", "up"]
        self._env = {**os.environ, **({} if warm else {"TORCHYARD_LAUNCHER": "torchrun"}), **env}
        self._elsewhere = [
            *(("--database", database) if database is not None else ()),
            *(("--redis", redis) if redis is not None else ()),
        ]
        self._up: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """That of `up`."""
        assert self._up is not None
        return self._up.pid

    @property
    def server(self) -> dict[str, Any]:
        return json.loads((self.data / "server.json").read_text())

    @property
    def client(self) -> Client:
        """A new one, which takes as long to make as three requests."""
        return Client(url=self.server["url"], token=self.server["token"])

    def start(self) -> None:
        log = (self.data.parent / "up.log").open("ab")
        with log:
            self._up = subprocess.Popen(
                [
                    *self._prefix,
                    *(*self._command, "--port", str(free_port())),
                    *("--data-dir", str(self.data), "--cpu-slots", str(self._slots), "--allow-path", str(self.code)),
                    *self._elsewhere,
                ],
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until(self._ready, what="the service is ready", context=self._log)

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """Signals `up` and waits for its end."""
        assert self._up is not None
        self._up.send_signal(number)
        return self._up.wait(90)

    def script(self, name: str, text: str) -> str:
        """Writes a user's script and returns the `code` URL of its folder."""
        folder = self.code / name
        folder.mkdir(exist_ok=True)
        (folder / "train.py").write_text(text)
        return f"file://{folder}"

    def submit_script(self, name: str, text: str, **spec: Any) -> JobView:
        code = self.script(name, text)
        return self.client.submit({"trainer": "script", "name": name, "config": {"code": code}, **spec}).view

    def wait(self, job_id: str, *states: JobState) -> JobView:
        """Waits until the job is in one of `states` (any terminal one by default) and returns it."""
        client = self.client

        def look() -> JobView | None:
            job = client.get(job_id).view
            wanted = job.state in states if states else job.state.terminal
            assert wanted or not job.state.terminal, f"{job.state}: {job.error} {job.status_reason}"
            return job if wanted else None

        return until(look, what=f"job {job_id} is {states or 'terminal'}", context=self._log)

    def processes(self) -> list[int]:
        """Returns every process that names the data folder, of the service and of its jobs."""
        jobs = {path.name for path in (self.data / "runs").glob("job_*")}
        return [*processes_naming(self.data), *(member.pid for member in job_processes.find(jobs))]

    def _ready(self) -> bool:
        assert self._up is not None
        assert self._up.poll() is None, self._log()
        try:
            # The file of an earlier one that was killed may still be there.
            return self.server["pid"] == self._up.pid and self.client.ready().status == "ok"
        except Exception:  # noqa: BLE001 - not yet, whatever it says
            return False

    def _log(self) -> str:
        logs = [self.data.parent / "up.log", *sorted((self.data / "logs").glob("*.log"))]
        return "\n".join(
            f"--- {path.name}\n{path.read_text(errors='replace')[-4000:]}" for path in logs if path.exists()
        )


@contextmanager
def running(service: Service) -> Generator[Service]:
    """Runs the service; afterwards it is stopped, and no process of it may be left."""
    service.start()
    try:
        yield service
    finally:
        below = process.descendants(service.pid)  # they show no environment, except to root
        try:
            code = service.stop()
        finally:
            left = [*service.processes(), *(item.pid for item in below if process.is_alive(item))]
            for pid in set(left):
                os.kill(pid, signal.SIGKILL)
    assert code == 0
    assert not left


def until(look: Callable[[], T | None], *, what: str, context: Callable[[], str] = str) -> T:
    """Polls `look`, less often the longer it takes. Returns its first result that is not None or False."""
    deadline, pause_s = time.monotonic() + DEADLINE_S, _SHORTEST_PAUSE_S
    while time.monotonic() < deadline:
        found = look()
        if found is not None and found is not False:
            return found
        time.sleep(pause_s)
        pause_s = min(1.2 * pause_s, _LONGEST_PAUSE_S)
    raise AssertionError(f"never came true: {what}\n{context()}")


def newest_step(service: Service, job_id: str) -> int:
    """Returns that of the one series that the job has."""
    (series,) = service.client.jobs.metrics(job_id).data
    return series.points[-1].step


def is_running(pid: int) -> bool:
    """Returns whether the process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def processes_naming(folder: Path) -> list[int]:
    """Returns the pids of running processes whose command line or environment names `folder`."""
    needle = str(folder).encode()
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            named = needle in (entry / "cmdline").read_bytes() or needle in (entry / "environ").read_bytes()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if named and is_running(int(entry.name)):
            found.append(int(entry.name))
    return found
