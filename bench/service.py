"""Starts the service to measure, with a folder of its own, and its databases."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
import json
import os
from pathlib import Path
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any, TypeVar
from urllib.parse import urlsplit

from sqlalchemy import create_engine, make_url, text

from tests.postgresql import postgresql_server
from torchyard.client import Client

T = TypeVar("T")

_DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "shared_buffers": "128MB"}
_DEADLINE_S = 120.0
_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
"""With this variable, which `make` removes too, each start would compile all that it imports."""
LIMITS = {
    "TORCHYARD_MAX_REQUESTS_PER_SECOND": "1000000",
    "TORCHYARD_MAX_STREAMS": "2000",
    "TORCHYARD_MAX_CONNECTIONS_PER_ADDRESS": "2000",
}
"""One caller sends all load."""


@dataclass(frozen=True)
class Service:
    """A running `torchyard up`."""

    url: str
    token: str
    data: Path
    database: str
    """Its SQLAlchemy URL."""
    pids: dict[str, int]
    """The pids of `up` itself and of its children, by name."""
    ready_s: float
    """Seconds from its start until it was ready."""
    ready_cpu_s: float
    """The processor time that all its processes have taken by then, those that have ended included."""

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        assert parts.port is not None
        return parts.hostname, parts.port

    def client(self) -> Client:
        return Client(self.url, self.token)


@contextmanager
def scratch() -> Generator[Path]:
    """Yields an empty folder, and removes it afterwards."""
    with tempfile.TemporaryDirectory(prefix="torchyard-bench-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextmanager
def up(
    folder: Path,
    *,
    database: str | None = None,
    slots: int = 2,
    allowed: Sequence[Path] = (),
    package_index: str = "",
    api_processes: int = 1,
    tree: Path | None = None,
) -> Generator[Service]:
    """Runs the service with its data in `folder`. Jobs may write below its folder `code`, and read below `allowed`.

    `tree`: another checkout, whose service it is.
    """
    data, code = folder / "data", folder / "code"
    code.mkdir(exist_ok=True)
    command = [
        *(sys.executable, "-P", "-m", "torchyard.cli", "up", "--port", "0", "--json"),
        *("--data-dir", str(data), "--cpu-slots", str(slots)),
        *("--allow-path", f"{code}:rw"),
        *(part for path in allowed for part in ("--allow-path", str(path))),
        *(("--database", database) if database else ()),
    ]
    began = time.monotonic()
    log = folder / "up.log"
    env = {
        **{name: value for name, value in os.environ.items() if name != _NO_BYTECODE},
        **LIMITS,
        "TORCHYARD_PACKAGE_INDEX": package_index,
        "TORCHYARD_API_PROCESSES": str(api_processes),
    }
    if tree is not None:
        env["PYTHONPATH"] = str(tree)
    with log.open("ab") as said, subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=said) as process:
        try:
            assert process.stdout is not None
            found = json.loads(process.stdout.readline() or sys.exit(f"the service did not start:\n{log.read_text()}"))
            ready_s = time.monotonic() - began
            pids = {"up": process.pid, **_children(data)}
            yield Service(
                url=found["url"],
                token=found["token"],
                data=data,
                database=database or f"sqlite:///{data / 'torchyard.db'}",
                pids=pids,
                ready_s=ready_s,
                ready_cpu_s=sum(processor_s(pid) for pid in pids.values()),
            )
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(90)


def script(folder: Path, text: str, *, processes: int = 1) -> dict[str, Any]:
    """Writes `text` into `folder`, and returns the spec of a job that runs it."""
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(text)
    return {
        "trainer": "script",
        "config": {"code": folder.as_uri()},
        "resources": {"devices_per_node": processes, "device": "cpu"},
    }


def wait_for(condition: Callable[[], T | None], what: str, *, pause: float = 0.01) -> T:
    """Returns the first value of `condition` that is true. Exits after a deadline."""
    deadline = time.monotonic() + _DEADLINE_S
    while not (found := condition()):
        if time.monotonic() > deadline:
            sys.exit(f"timed out while waiting for {what}")
        time.sleep(pause)
    return found


@contextmanager
def databases() -> Generator[dict[str, str | None]]:
    """Yields the URL of an empty database of each kind, by name.

    SQLite is None, the service's own file. PostgreSQL is as durable as in production.
    """
    with postgresql_server(_DURABLE) as server:
        yield {"SQLite": None, "PostgreSQL": new_database(server.url("postgres"), "torchyard")}


def new_database(url: str, name: str) -> str:
    """Creates an empty PostgreSQL database on the server of `url`, and returns its URL."""
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return make_url(url).set(database=name).render_as_string(hide_password=False)


def processor_s(pid: int) -> float:
    """Returns the processor time of a process, and of the children that it has waited for."""
    found = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return sum(map(int, found[11:15])) / os.sysconf("SC_CLK_TCK")


def _children(data: Path) -> dict[str, int]:
    return json.loads((data / "server.json").read_bytes())["processes"]
