"""Runs the whole service as separate real processes on a folder of its own, as in production.

With boxes, one of its workers reaches database and Redis, and two are machines of a lab that have joined over HTTPS.
"""

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
import json
import os
from pathlib import Path
import secrets
import shutil
import signal
import subprocess
import sys
import time
from typing import Literal

from tests import forked
from tests.chaos import job_processes
from tests.chaos.boxes import BoxWorker
from tests.chaos.components import Component, Database, Program
from tests.chaos.disk import Disk, disk
from tests.chaos.proxy import Proxy, proxy
from tests.chaos.receiver import Receiver, receiving
from tests.hosts.lab import Lab
from tests.postgresql import postgresql_server
from tests.servers import free_port
from torchyard.cli.up import redis_server
from torchyard.client import Client
from torchyard.client.packing.bundle import pack
from torchyard.contract.errors import TorchyardError
from torchyard.host import tls

DatabaseKind = Literal["postgresql", "sqlite"]

_WORKERS = ("worker-1", "worker-2")
_BOXES = 2
SLOTS = 2
"""CPU slots of each worker."""
API_PROCESSES = 2

_DISK_BYTES = 4 << 30
"""Jobs of an hour need about 20 MB each. Only used bytes take memory."""
_START_S = 240.0
_END_S = 30.0
_TICK_S = 0.05


@dataclass(frozen=True)
class Deployment:
    """All connections to Redis and PostgreSQL go through `proxies`, as do those of boxes to the API.

    Blobs and the run directories of direct workers are on `disk`.
    """

    folder: Path
    disk: Disk
    components: dict[str, Component]
    """`api`, `controller`, the workers, `redis`, and `postgresql` if that is the database."""
    direct: Sequence[str]
    """The workers that reach database and Redis."""
    proxies: dict[str, Proxy]
    receiver: Receiver
    database_url: str
    """Its SQLAlchemy URL, without a proxy."""
    url: str
    token: str
    lab: Lab | None
    """Has the boxes, None if there are none."""
    boxes: dict[str, BoxWorker] = field(default_factory=dict[str, BoxWorker])

    @property
    def workers(self) -> tuple[str, ...]:
        return (*self.direct, *self.boxes)

    @property
    def secret_key(self) -> str:
        """The key of the users' secrets, which all programs have."""
        return self.token * 2

    @property
    def code(self) -> Path:
        return self.folder / "code"

    @property
    def blobs(self) -> Path:
        return self.disk.folder / "blobs"

    def worker_id(self, name: str) -> str:
        """Returns the worker's id."""
        if name in self.boxes:
            return self.boxes[name].worker_id
        return json.loads((self.disk.folder / name / "worker.json").read_text())["id"]

    def client(self, *, patience: float = 30.0) -> Client:
        certificate = None if self.lab is None else tls.own(self.disk.folder / "api").text()
        return Client(self.url, self.token, certificate=certificate, patience=patience)

    def code_of(self, client: Client, scripts: Mapping[str, str]) -> str:
        """Returns the URL of code for all workers: a folder of this host, or what boxes download."""
        for name, text in scripts.items():
            (self.code / name).write_text(text)
        if self.lab is None:
            return self.code.as_uri()
        with pack(self.code) as bundle:
            client.bundles.upload(bundle)
        return bundle.url

    def keep_alive(self) -> None:
        """Restarts components that have ended. Only for the thread that started them."""
        for component in self.components.values():
            component.keep_alive()

    def keep_alive_until(self, condition: Callable[[], bool], *, within: float, every: float = _TICK_S) -> bool:
        """Polls the condition every `every` seconds. Returns whether it came true `within` so many seconds."""
        deadline = time.monotonic() + within
        while not condition():
            if time.monotonic() > deadline:
                return False
            self.keep_alive()
            time.sleep(every)
        return True

    def ready(self) -> bool:
        """Returns whether every component answers and every worker is alive."""
        try:
            with self.client(patience=0) as client:
                alive = [worker for worker in client.workers.list() if worker.state == "ready"]
                return client.ready().status == "ok" and len(alive) == len(self.workers)
        except TorchyardError:
            return False

    def logs(self) -> str:
        """Returns the end of each program's log."""
        found = sorted([*self.folder.glob("logs/*.log"), *self.folder.glob("lab/b*/data/logs/*.log")])
        return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in found)


@contextmanager
def deployed(
    folder: Path, *, database: DatabaseKind, forks: bool = False, boxes: bool = False
) -> Generator[Deployment]:
    """Runs a service and yields it when it is ready. Afterwards its processes and jobs are killed and its disk removed.

    `forks`: its programs are forks of a process that has imported what they import, so that Python starts but once.
    `boxes`: whether two of its workers have joined it from boxes. Raises TimeoutError if it does not become ready.
    """
    with ExitStack() as stack:
        for name in ("logs", "code", "redis", "tmp"):
            (folder / name).mkdir()
        made = _with_servers(folder, stack, database=database, boxes=boxes)
        stack.callback(_end, made)
        environment = _environment(made)
        made.components["redis"].keep_alive()
        if forks:
            forked.run("migrations", "upgrade", env=environment, cwd=folder).check_returncode()
        else:
            migration = [sys.executable, "-P", "-m", "migrations", "upgrade"]
            subprocess.run(migration, env=environment, cwd=folder, check=True, capture_output=True, timeout=_START_S)
        for name, module in (
            ("api", "api"),
            ("controller", "controller"),
            *((worker, "worker") for worker in made.direct),
        ):
            argv = [sys.executable, "-P", "-m", module]
            own, log = environment | _data_dir(made, name), folder / "logs" / f"{name}.log"
            made.components[name] = Program(argv, env=own, log=log, forked_in=folder if forks else None)
        if not made.keep_alive_until(made.ready, within=_START_S, every=0.2):
            raise TimeoutError(f"the service is not ready after {_START_S:g} s\n{made.logs()}")
        if made.lab is not None:
            _join(made, made.lab)
        yield made


def _join(made: Deployment, lab: Lab) -> None:
    url = f"https://{lab.address}:{made.proxies['api'].port}"
    with made.client() as client:
        for number in range(1, _BOXES + 1):
            box = lab.box(number)
            arguments = (url, "--code", client.workers.code(box.name).code)
            made.components[box.name] = made.boxes[box.name] = BoxWorker(box, arguments, slots=SLOTS)
    if not made.keep_alive_until(made.ready, within=_START_S, every=0.2):
        raise TimeoutError(f"the boxes have not joined after {_START_S:g} s\n{made.logs()}")


def _with_servers(folder: Path, stack: ExitStack, *, database: DatabaseKind, boxes: bool) -> Deployment:
    """Prepares the folder, Redis and proxies, and starts the database."""
    password = secrets.token_hex(16)
    socket_path = redis_server.socket_in(folder / "redis")
    if socket_path.parent != folder / "redis":
        stack.callback(shutil.rmtree, socket_path.parent)
    argv = redis_server.argv(redis_server.find_binary(), folder=folder / "redis", socket_path=socket_path)
    redis = Program(
        [*argv, "--aclfile", "", "--requirepass", password], env=dict(os.environ), log=folder / "logs" / "redis.log"
    )
    components: dict[str, Component] = {"redis": redis}
    proxies = {"redis": stack.enter_context(proxy(socket_path))}
    lab = stack.enter_context(Lab(folder / "lab")) if boxes else None
    space = stack.enter_context(disk(folder / "disk" if lab is None else lab.hidden, size=_DISK_BYTES))
    (space.folder / "blobs").mkdir(mode=0o700)
    database_url = f"sqlite:///{space.folder / 'torchyard.db'}"
    if database == "postgresql":
        server = stack.enter_context(postgresql_server())
        components["postgresql"] = Database(server)
        proxies["postgresql"] = stack.enter_context(proxy(server.socket))
        database_url = server.url("postgres")
    (folder / "redis-password").write_text(password)
    port, token = free_port(), secrets.token_hex(16)
    if lab is not None:
        proxies["api"] = stack.enter_context(proxy(port, host=lab.address))
    receiver = stack.enter_context(receiving())
    return Deployment(
        folder,
        space,
        components,
        _WORKERS if lab is None else _WORKERS[:1],
        proxies,
        receiver,
        database_url,
        f"{'http' if lab is None else 'https'}://127.0.0.1:{port}",
        token,
        lab,
    )


def _environment(made: Deployment) -> dict[str, str]:
    """Returns the environment of all programs."""
    password, redis = (made.folder / "redis-password").read_text(), made.proxies["redis"].port
    database = made.database_url
    if "postgresql" in made.proxies:
        database = f"postgresql://postgres@127.0.0.1:{made.proxies['postgresql'].port}/postgres"
    return os.environ | {
        "TORCHYARD_DATABASE_URL": database,
        "TORCHYARD_REDIS_URL": f"redis://:{password}@127.0.0.1:{redis}/0",
        "TORCHYARD_TOKEN": made.token,
        "TORCHYARD_SECRET_KEY": made.secret_key,
        "TORCHYARD_NOTIFY_ALLOW": f"127.0.0.1/32:{made.receiver.server_port}",
        "TORCHYARD_PORT": made.url.rpartition(":")[2],
        "TORCHYARD_API_PROCESSES": str(API_PROCESSES),
        "TORCHYARD_CPU_SLOTS": str(SLOTS),
        "TORCHYARD_ALLOW_PATHS": str(made.code),
        "TMPDIR": str(made.folder / "tmp"),  # a killed supervisor leaves its attempt's temporary folder
        "PYTHONUNBUFFERED": "1",
        **({} if made.lab is None else {"TORCHYARD_TLS": "1"}),
    }


def _data_dir(made: Deployment, name: str) -> dict[str, str]:
    """Makes a data directory that shares the blobs, and returns its variable."""
    folder = made.disk.folder / name
    folder.mkdir(mode=0o700)
    (folder / "blobs").symlink_to(made.blobs)
    return {"TORCHYARD_DATA_DIR": str(folder)}


def _end(made: Deployment) -> None:
    """Kills every process of the service and of its jobs."""
    for name in (*made.workers, "api", "controller", "redis"):
        if name in made.components:
            made.components[name].stop()
    jobs = {path.name for path in [*made.disk.folder.glob("*/runs/job_*"), *made.folder.glob("lab/*/data/runs/job_*")]}
    _kill(lambda: [*job_processes.naming(made.folder), *(process.pid for process in job_processes.find(jobs))])


def _kill(left: Callable[[], Collection[int]]) -> None:
    """Kills what `left` finds until it finds nothing. Raises TimeoutError."""
    deadline = time.monotonic() + _END_S
    while pids := left():
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {pids} cannot be killed")
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_TICK_S)
