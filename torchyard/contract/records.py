"""What the JSON files of a run directory hold."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from torchyard.contract.events import CardValues
from torchyard.contract.job import EndReason
from torchyard.contract.schema import Duration, MetricKey


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
    launcher: Literal["torchrun", "warm"] = "torchrun"
    """What brings the ranks up: torchrun, or the supervisor by forks of itself."""
    argv: list[str]
    """Starts the launcher. With `warm`, it is the rank's program: `SCRIPT [ARGS…]` or `-m MODULE [ARGS…]`."""
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
