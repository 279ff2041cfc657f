"""A rack for tests of strict isolation: a helper of root, and a service whose user has no privilege.

All of it is on this machine, and needs root. The service's programs are started by `as_service`.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
import json
import os
from pathlib import Path
import shutil
import subprocess
import sys
import tempfile
from types import MappingProxyType
import uuid

from store.blobs.folder import BlobFolder
from tests.worker.attempt import wait_for
from torchyard.contract.attempts.records import ExitReport, LaunchPlan, ProcessIdentity, StopRequest, Strict
from torchyard.contract.attempts.rundir import Env, RunDir
from torchyard.contract.states import EndReason
from torchyard.host.recordfiles import read_record, write_record
from worker.bundles.cache import BundleCache
from worker.engines.base import COMMAND_OPTION
from worker.engines.local.launchers import rank_start
from worker.engines.local.launchers.torchrun import rank_command
from worker.host import process
from worker.host.attempt_key import AttemptKey
from worker.host.datafolders import UNPACKED
from worker.sandbox.helper.state import State
from worker.sandbox.policy import strict_sandbox
from worker.sandbox.writable import AttemptFolders, WritableFolders

SERVICE = 61_000
"""The uid and gid of the service."""
FIRST_UID = 261_000
TORCHRUN = (
    *("-m", "trainer.torchrun", "--nnodes=1", "--local-addr=127.0.0.1"),
    *("--max-restarts=0", "--nproc-per-node=2", "--no-python"),
)
"""As `TorchrunLauncher` does it, for two ranks."""
ROOT = Path(__file__).resolve().parents[2]
LAUNCHER = ROOT / "tests" / "worker" / "launcher.py"


def obstacle() -> str | None:
    """Returns why strict isolation cannot be tested on this machine, or None."""
    if os.geteuid() != 0:
        return "the helper of strict isolation must run as root"
    if shutil.which("bwrap") is None:
        return "there is no bwrap"
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, helper_of(Path(folder)) as (program, log):
        return None if program is not None else log.read_text()


@contextmanager
def helper_of(folder: Path, *, options: Sequence[str] = ()) -> Generator[tuple[subprocess.Popen[bytes] | None, Path]]:
    """Runs a helper for the data directory in `folder`. Yields None if it ends at once, and its log."""
    folder.chmod(0o755)
    data = folder / "data"
    data.mkdir(mode=0o700, exist_ok=True)
    os.chown(data, SERVICE, SERVICE)
    log, socket = folder / "helper.log", folder / "helper.sock"
    own = [f"--service-user={SERVICE}:{SERVICE}", f"--data-dir={data}", f"--socket={socket}"]
    own += [f"--state-dir={folder}/state", f"--first-uid={FIRST_UID}", "--uids=4", "--shm=64m"]
    command = [sys.executable, "-P", "-m", "worker.sandbox.helper", *own, *options]
    with log.open("wb") as output:
        program = subprocess.Popen(command, stdout=output, stderr=output, cwd="/")
    try:
        wait_for(lambda: program.poll() is not None or b"listens" in log.read_bytes(), "the helper")
        yield (program if program.poll() is None else None), log
    finally:
        program.terminate()
        program.wait()


def as_service(stage: Path) -> list[str]:
    """Returns the command that runs another one as the service's user, who can read this Python and the sources.

    `stage`: an empty folder.
    """
    user = ["setpriv", f"--reuid={SERVICE}", f"--regid={SERVICE}", "--clear-groups", "--"]
    needed = [path for path in {Path(sys.base_prefix).resolve(), ROOT} if _closed_above(path) is not None]
    if not needed:
        return user
    staged = {stage / str(number): path for number, path in enumerate(needed)}
    steps = [f"mount -t tmpfs none {stage}"]
    steps += [f"mkdir {kept} && mount --bind {path} {kept}" for kept, path in staged.items()]
    steps += [f"mount -t tmpfs -o mode=755 none {closed}" for closed in {_closed_above(path) for path in needed}]
    steps += [f"mkdir -p {path} && mount --bind {kept} {path}" for kept, path in staged.items()]
    return ["unshare", "--mount", "sh", "-c", " && ".join([*steps, 'exec "$@"']), "sh", *user]


def _closed_above(path: Path) -> Path | None:
    """Returns the first folder of the path that other users may not enter."""
    return next((folder for folder in reversed(path.parents) if not folder.stat().st_mode & 0o001), None)


@contextmanager
def helper_alone(options: Sequence[str]) -> Generator[str]:
    """Runs a helper that must end at once, and yields what it said."""
    with tempfile.TemporaryDirectory() as folder, helper_of(Path(folder), options=options) as (program, log):
        assert program is None
        yield log.read_text()


def cgroup_v2() -> Path | None:
    """Returns the folder where cgroup v2 is mounted, if this user may make groups in it."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    found = next((Path(mount[1]) for mount in mounts if mount[2] == "cgroup2"), None)
    return found if found is not None and os.access(found, os.W_OK) else None


@dataclass
class StrictAttempt:
    """One attempt of a job of its own."""

    host: "StrictHost"
    job_id: str
    owner: str
    world_size: int
    bundles: Sequence[str] = ()
    """The unpacked bundles of the owner that it reads."""
    program: subprocess.Popen[bytes] | None = None

    @property
    def run(self) -> RunDir:
        return RunDir(self.host.data / "runs" / self.job_id / "1")

    @property
    def own_folders(self) -> AttemptFolders:
        return self.host.worker_places.of(AttemptKey(self.job_id, 1), owner=self.owner)

    def plan(self, argv: Sequence[str], *, env: Mapping[str, str]) -> LaunchPlan:
        own = {Env.JOB_ID: self.job_id, Env.ATTEMPT: "1", Env.RUN_DIR: str(self.run.job)}
        path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
        return LaunchPlan(
            job_id=self.job_id,
            attempt=1,
            claimed_at=1,
            argv=list(argv),
            env={
                "PATH": path,
                "OMP_NUM_THREADS": "1",
                **self.own_folders.environment({}),
                "TMPDIR": "/tmp",
                **own,
                **env,
            },
            cwd=str(self.run.job),
            world_size=self.world_size,
            time_limit=timedelta(minutes=5),
            stall_timeout=timedelta(minutes=5),
            stop_grace=timedelta(seconds=30),
            sandbox=strict_sandbox(
                Strict(helper=str(self.host.socket), owner=self.owner, bundles=list(self.bundles)),
                self.own_folders,
            ),
        )

    def start(self, *, secrets: Mapping[str, str] = MappingProxyType({})) -> None:
        """Starts the supervisor."""
        memory = os.memfd_create("secrets")
        os.write(memory, json.dumps(dict(secrets)).encode())
        command = [sys.executable, "-P", "-m", "worker.engines.local.supervisor", str(self.run.root), str(memory)]
        with (self.host.folder / "supervisor.log").open("ab") as log:
            self.program = subprocess.Popen(
                [*as_service(self.host.stage), *command], pass_fds=(memory,), stdout=log, stderr=log, cwd="/"
            )
        os.close(memory)

    @property
    def init(self) -> ProcessIdentity:
        found = read_record(self.run.init, ProcessIdentity)
        assert found is not None
        return found

    def report(self) -> ExitReport:
        """Waits until the supervisor has ended, and returns the exit report."""
        assert self.program is not None
        self.program.wait(timeout=120)
        found = read_record(self.run.exit, ExitReport)
        assert found is not None, self.host.logs()
        return found

    def stop(self, *, grace: int) -> None:
        """Asks for the stop, as the worker does."""
        write_record(self.run.ctl / "new", StopRequest(reason=EndReason.CANCELLED, grace=timedelta(seconds=grace)))
        os.chown(self.run.ctl / "new", SERVICE, SERVICE)
        (self.run.ctl / "new").rename(self.run.stop)

    def log(self, source: str, stream: str = "stdout") -> str:
        return self.run.log(source, stream).read_text()

    def wait_for_file(self, name: str) -> None:
        wait_for(lambda: (self.run.job / name).exists() or self._ended(), name)
        assert (self.run.job / name).exists(), self.host.logs()

    def processes(self) -> list[ProcessIdentity]:
        """Returns what of the attempt runs, seen from outside."""
        return [self.init, *process.descendants(self.init.pid)] if process.is_alive(self.init) else []

    def _ended(self) -> bool:
        return self.program is None or self.program.poll() is not None


@dataclass
class StrictHost:
    """A data directory of the service, its helper, and the attempts."""

    folder: Path

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def socket(self) -> Path:
        return self.folder / "helper.sock"

    @property
    def stage(self) -> Path:
        return self.folder / "stage"

    @property
    def code(self) -> Path:
        """A folder that the helper's operator allows."""
        return self.folder / "code"

    @property
    def state(self) -> State:
        return State(self.folder / "state", range(FIRST_UID, FIRST_UID + 4))

    @property
    def worker_places(self) -> WritableFolders:
        return WritableFolders(self.data, temporary=self.data / "tmp")

    @property
    def blobs(self) -> BlobFolder:
        return BlobFolder(self.folder / "blobs")

    def unpacked(self, sha256: str, *, owner: str) -> Path:
        """Unpacks a bundle for the owner. Root does it, who without its privileges enters only folders of its own."""
        _give(self.data / UNPACKED, to=os.geteuid())
        return BundleCache(self.data / UNPACKED, self.blobs).fetch(sha256, owner=owner)

    def attempt(
        self,
        text: str,
        *,
        owner: str = "ada",
        world_size: int = 1,
        env: Mapping[str, str] = MappingProxyType({}),
        secrets: Mapping[str, str] = MappingProxyType({}),
        args: Sequence[str] = (),
        launcher: Sequence[str] | None = None,
        bundles: Sequence[str] = (),
    ) -> StrictAttempt:
        """Runs `text` as the ranks' script, by default with a stand-in for torchrun."""
        attempt = self.prepared(
            text, owner=owner, world_size=world_size, env=env, args=args, launcher=launcher, bundles=bundles
        )
        attempt.start(secrets=secrets)
        return attempt

    def prepared(
        self,
        text: str,
        *,
        owner: str = "ada",
        world_size: int = 1,
        env: Mapping[str, str] = MappingProxyType({}),
        args: Sequence[str] = (),
        launcher: Sequence[str] | None = None,
        bundles: Sequence[str] = (),
    ) -> StrictAttempt:
        """Writes all that the worker writes before it starts a supervisor."""
        attempt = StrictAttempt(self, f"job_{uuid.uuid4()}", owner, world_size, bundles)
        script = self.code / f"{attempt.job_id}.py"
        script.write_text(text)
        command = [str(LAUNCHER), str(world_size)] if launcher is None else [*launcher, *rank_command([])]
        attempt.run.create()
        attempt.own_folders.create()
        argv = [sys.executable, "-P", *command, str(script), *args]
        write_record(attempt.run.launch, attempt.plan(argv, env=env))
        self.give_to_service()
        return attempt

    def command(self, program: Sequence[str], *, env: Mapping[str, str], secrets: Mapping[str, str]) -> StrictAttempt:
        """Runs a command that would start its own ranks, two of them."""
        attempt = StrictAttempt(self, f"job_{uuid.uuid4()}", "ada", 2)
        attempt.run.create()
        attempt.own_folders.create()
        argv = [sys.executable, "-I", "-S", str(Path(rank_start.__file__)), COMMAND_OPTION, "0", "2", *program]
        plan = replace(attempt.plan(argv, env={}), launcher="command", rank_env=dict(env))
        write_record(attempt.run.launch, plan)
        self.give_to_service()
        attempt.start(secrets=secrets)
        return attempt

    def run_as_service(self, *command: str) -> str:
        """Returns the output of a command that the service's user runs."""
        full = [*as_service(self.stage), *command]
        return subprocess.run(full, check=True, capture_output=True, text=True, cwd="/").stdout

    def give_to_service(self) -> None:
        """Makes the service the owner of its data, as if it had written them."""
        _give(self.data, to=SERVICE)

    def logs(self) -> str:
        return "".join(file.read_text() for file in self.folder.glob("*.log"))


def _give(root: Path, *, to: int) -> None:
    for folder, folders, files in os.walk(root):
        for name in (".", *folders, *files):
            os.chown(Path(folder, name), to, to, follow_symlinks=False)


@contextmanager
def strict_host(options: Sequence[str] = (), *, below: str = "/var/tmp") -> Generator[StrictHost]:
    """Runs the helper of a host whose folders lie `below` another one, and removes all in the end."""
    folder = Path(tempfile.mkdtemp(prefix="torchyard-strict-", dir=below)).resolve()
    host = StrictHost(folder)
    for path in (host.stage, host.code, host.data, host.data / "tmp"):
        path.mkdir(mode=0o755)
    host.give_to_service()
    allowed = [f"--allow-path={host.code}", f"--allow-path={LAUNCHER.parent}"]
    try:
        with helper_of(folder, options=[*allowed, *options]) as (program, log):
            assert program is not None, log.read_text()
            yield host
    finally:
        shutil.rmtree(folder)
