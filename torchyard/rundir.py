"""One attempt on disk: its files, the records in them, and the environment of a training process.

The supervisor and the ranks share nothing but this folder and the environment named here.

    ctl/               written by worker and supervisor alone
      plan.json        what to start, and its limits                 the worker writes it, the supervisor reads it
      supervisor.json  the supervisor's identity                     the supervisor writes it
      supervisor.log   what the supervisor says
      stop.json        asks the attempt to stop                      the worker writes it, supervisor and ranks read it
      exit.json        how the attempt ended; nothing runs any more  the supervisor writes it
    input/             written by the worker, read-only once the attempt starts
      config.json      the trainer's resolved configuration
      resume/          the checkpoint to resume from
    job/               the job's own: whatever lies here may be forged
      events.jsonl     lines of `torchyard.events`                   rank 0 appends
      ranks/N.json     the process of rank N                         rank N writes it when it exists
      ranks/N.finished its program has come to its own end           rank N touches it
      errors/N.json    what rank N raised                            rank N writes it
      stop/            the ranks' agreement on the last step         the ranks write it
      logs/            one file per rank and stream                  the ranks' output, copied by the operating system
      torchrun/        torchrun's own folder                         torchrun
      checkpoints/     published checkpoints, each whole once it has its manifest
      artifacts/       other files that the job leaves

That is layout 2. In layout 1, of an older version, all of it lies in one folder, and `plan.json` is `launch.json`.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
import os
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from torchyard.events import CardValues
from torchyard.failpoints import failpoint
from torchyard.job import EndReason
from torchyard.schema import Duration, MetricKey

T = TypeVar("T", bound="Record")

MANIFEST = "manifest.json"
STATE_FILE = "state.pt"
WEIGHTS_FILE = "model.safetensors"


class Env(StrEnum):
    """Variables that a training process sees, beside torchrun's own."""

    JOB_ID = "TORCHYARD_JOB_ID"
    ATTEMPT = "TORCHYARD_ATTEMPT"
    RUN_DIR = "TORCHYARD_RUN_DIR"
    CONFIG = "TORCHYARD_CONFIG"
    CHECKPOINT_DIR = "TORCHYARD_CHECKPOINT_DIR"
    RESUME_FROM = "TORCHYARD_RESUME_FROM"  # a folder with state.pt and manifest.json; absent on a fresh start
    DATA = "TORCHYARD_DATA"  # the resolved `data.source`: `digits`, or an absolute path; absent for a script
    WEIGHTS = "TORCHYARD_WEIGHTS"  # the absolute path of `model.weights`; absent where those are no file


class Record(BaseModel):
    """A JSON file of the run directory. A newer program's extra keys are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, ser_json_inf_nan="strings")


class ProcessIdentity(Record):
    """A process that no other can be taken for, even after its pid was reused or the host rebooted."""

    pid: int
    start_time: int
    """Clock ticks from boot to start: field 22 of `/proc/<pid>/stat`."""
    boot_id: str

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """The identity of the process (or zombie) that has `pid` now; None where there is none."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            return None
        fields = stat.rpartition(b")")[2].split()  # the name before it may hold anything
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return cls(pid=pid, start_time=int(fields[19]), boot_id=boot_id)


class LaunchPlan(Record):
    """What the supervisor starts."""

    job_id: str
    attempt: int
    claimed_at: int | None = None
    """Microseconds, as the attempt's row has it: where an older database was put back, a number is used once more."""
    argv: list[str]
    env: dict[str, str]
    """The whole environment: nothing else is inherited."""
    cwd: str
    world_size: int
    time_limit: Duration
    """What is left of the job's limit for this attempt."""
    stall_timeout: Duration
    stop_grace: Duration
    reports: bool = False
    """Whether the program is known to write events: without any, `stall_timeout` counts from the launch."""


class StopRequest(Record):
    reason: EndReason
    grace: Duration = timedelta(seconds=30)


class ExitReport(Record):
    """How an attempt ended. When it is there, no process of the attempt is left."""

    reason: EndReason
    message: str = ""
    rank: int | None = None
    exit_code: int | None = None
    """Of the failing rank: its status, or minus the number of the signal that ended it."""
    traceback: str | None = None


class RankError(Record):
    """An exception that left a rank's program."""

    rank: int
    time: int
    """Microseconds since the epoch."""
    reason: Literal[
        EndReason.USER_ERROR,
        EndReason.OUT_OF_MEMORY,
        EndReason.DATA_ERROR,
        EndReason.CONFIG_ERROR,
        EndReason.DEVICE_FAULT,
        EndReason.WORKER_LOST,
    ]
    type: str
    message: str
    traceback: str


class ManifestFile(Record):
    path: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}(/[A-Za-z0-9_][A-Za-z0-9._-]{0,99}){0,4}$")]
    size: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Manifest(Record):
    """Written last, so a checkpoint that has one is whole."""

    step: Annotated[int, Field(ge=0, lt=2**63)]
    epoch: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    end_of_epoch: bool = True
    """Whether `epoch` was finished; a checkpoint saved inside an epoch has no `epoch-N` alias."""
    metrics: Annotated[dict[MetricKey, float], Field(max_length=1000)] = {}
    files: Annotated[list[ManifestFile], Field(max_length=1000)]
    card: CardValues | None = None
    """What the run was when this was saved."""


@dataclass(frozen=True)
class RunDir:
    """The paths of one attempt's folder. `layout`: 2, or 1 for an attempt that an older version has started."""

    root: Path
    layout: int = 2

    @classmethod
    def found(cls, root: Path) -> Self:
        """With the layout that the folder at `root` has; 2 where there is none yet."""
        old = os.path.lexists(root / "launch.json") and not os.path.lexists(root / "ctl")
        return cls(root, layout=1 if old else 2)

    @classmethod
    def of_job(cls, path: Path) -> Self:
        """Of a rank: `path` is what TORCHYARD_RUN_DIR says."""
        if path.name == "job" and os.path.lexists(path.parent / "ctl"):
            return cls(path.parent)
        return cls(path, layout=1)

    @property
    def ctl(self) -> Path:
        return self._part("ctl")

    @property
    def input(self) -> Path:
        return self._part("input")

    @property
    def job(self) -> Path:
        """TORCHYARD_RUN_DIR."""
        return self._part("job")

    @property
    def config(self) -> Path:
        return self.input / "config.json"

    @property
    def launch(self) -> Path:
        return self.ctl / ("launch.json" if self.layout == 1 else "plan.json")

    @property
    def supervisor(self) -> Path:
        return self.ctl / "supervisor.json"

    @property
    def supervisor_log(self) -> Path:
        return self.ctl / "supervisor.log"

    @property
    def stop(self) -> Path:
        return self.ctl / "stop.json"

    @property
    def exit(self) -> Path:
        return self.ctl / "exit.json"

    @property
    def events(self) -> Path:
        return self.job / "events.jsonl"

    @property
    def ranks(self) -> Path:
        return self.job / "ranks"

    @property
    def errors(self) -> Path:
        return self.job / "errors"

    @property
    def agreement(self) -> Path:
        return self.job / "stop"

    @property
    def logs(self) -> Path:
        return self.job / "logs"

    @property
    def torchrun(self) -> Path:
        return self.job / "torchrun"

    @property
    def resume(self) -> Path:
        return self.input / "resume"

    @property
    def checkpoints(self) -> Path:
        return self.job / "checkpoints"

    @property
    def artifacts(self) -> Path:
        return self.job / "artifacts"

    def finished(self, rank: int) -> Path:
        """There once the rank's program has ended well, and not because it was asked to stop."""
        return self.ranks / f"{rank}.finished"

    def log(self, source: str, stream: str) -> Path:
        """`source` is `launcher` or `rank-N`, `stream` is `stdout` or `stderr`."""
        return self.logs / f"{source}.{stream}"

    def create(self) -> None:
        """Makes the folders, for their owner alone, and its inputs writable again. Raises OSError."""
        self.root.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        own = (self.root, self.ctl, self.input, self.job)
        for folder in (*own, self.ranks, self.errors, self.agreement, self.logs, self.checkpoints, self.artifacts):
            folder.mkdir(mode=0o700, exist_ok=True)

    def _part(self, name: str) -> Path:
        return self.root if self.layout == 1 else self.root / name


def process_title(job_id: str, attempt: int, role: str) -> str:
    """What a process of an attempt calls itself: orphans are found by it. `role` is `rank N` or `supervisor`."""
    return f"torchyard {job_id} attempt {attempt} {role}"


def write_record(path: Path, record: Record) -> None:
    """Publishes `record` at `path`: a reader sees all of it or nothing, also after a power cut. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    kind = path.parent.name if path.stem.isdecimal() else path.stem
    with temporary.open("w", encoding="utf-8") as file:
        file.write(record.model_dump_json())
        file.flush()
        failpoint(f"record.{kind}.fsync")
        os.fsync(file.fileno())
    failpoint(f"record.{kind}.rename")
    temporary.rename(path)
    failpoint(f"record.{kind}.renamed")
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Makes the names in `path` durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_record(path: Path, kind: type[T]) -> T | None:
    """The record at `path`, or None where there is no such file. Raises ValueError for a malformed one."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    return kind.model_validate_json(raw)
