"""The states of a job, the transitions between them, why it is in one, and the reasons for which an attempt ends."""

from dataclasses import dataclass
from datetime import datetime

from torchyard.contract.wire.since311 import StrEnum


class JobState(StrEnum):
    """The state of a job."""  # only store.jobs.jobs.transition writes it

    QUEUED = "queued"  # entered by submit, retry, rescue and resume; left by a worker's claim, a pause or a cancel
    STARTING = "starting"  # entered by a worker's claim; left when every rank's process exists, or the attempt ends
    RUNNING = "running"  # entered by the worker that owns the attempt; left when the attempt ends
    PAUSED = "paused"  # entered when a paused attempt has ended; left by resume or cancel
    SUCCEEDED = "succeeded"  # entered by the attempt's last transaction; final
    FAILED = "failed"  # entered by the attempt's last transaction; final
    CANCELLED = (
        "cancelled"  # entered by the API while no attempt is open, else by the attempt's last transaction; final
    )

    @property
    def terminal(self) -> bool:
        return not TRANSITIONS[self]


TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.STARTING, JobState.PAUSED, JobState.CANCELLED, JobState.FAILED}),
    JobState.STARTING: frozenset(
        {
            JobState.RUNNING,
            JobState.QUEUED,
            JobState.PAUSED,
            JobState.FAILED,
            JobState.CANCELLED,
        }
    ),
    JobState.RUNNING: frozenset(
        {JobState.SUCCEEDED, JobState.QUEUED, JobState.PAUSED, JobState.FAILED, JobState.CANCELLED}
    ),
    JobState.PAUSED: frozenset({JobState.QUEUED, JobState.CANCELLED}),
    JobState.SUCCEEDED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELLED: frozenset(),
}
"""Every legal transition. A state without a next state is terminal."""


def sources(target: JobState) -> frozenset[JobState]:
    """Returns the states from which `target` may be entered."""
    return frozenset(state for state, targets in TRANSITIONS.items() if target in targets)


@dataclass(frozen=True)
class Reason:
    """The reason for a state: a stable code and a sentence."""

    code: str
    message: str


@dataclass(frozen=True)
class DatedReason(Reason):
    """The reason for the state of a job or sweep, and its time."""

    since: datetime


AT_RUNG = "rung"
"""The code of the reason of a trial that has paused by itself, and waits for its promotion."""
DEVICES_BUSY = "devices_busy"
"""The code of the reason of a queued job that waits until devices are free."""
RESERVED = "reserved"
"""The code of the reason of a queued job for which devices are reserved."""
WAITS_FOR_JOBS = "waits_for_jobs"
"""The code of the reason of a queued job that waits for other jobs."""
CANCELLED_BY_OWNER = "cancelled by its owner"
"""What a cancelled job and its attempt say, unless the service has asked for it."""
DID_NOT_USE_GPUS = "it did not use its GPUs (idle_timeout)"
"""What an attempt says that was stopped as idle, unless the service knows more."""
WAITING_IN_SLURM = "waiting_in_slurm"
"""The code of the reason of a job that starts in a pool, and waits in its cluster's queue. The message is Slurm's."""


class EndReason(StrEnum):
    """Why an attempt ended. A failed job has it as `error.code`."""

    COMPLETED = "completed"
    USER_ERROR = "user_error"  # a rank raised, or left with a non-zero exit code
    OUT_OF_MEMORY = "out_of_memory"
    HANG = "hang"  # no progress for `stall_timeout`
    KILLED = "killed"  # a rank was ended by a signal that nobody here sent
    DATA_ERROR = "data_error"
    CONFIG_ERROR = "config_error"
    LAUNCH_FAILED = "launch_failed"  # the ranks did not start
    TIME_LIMIT = "time_limit"  # the sum over all attempts
    IDLE_TIMEOUT = "idle_timeout"  # it has hardly used its GPUs for that long
    CANCELLED = "cancelled"
    PAUSED = "paused"
    PREEMPTED = "preempted"
    WORKER_LOST = "worker_lost"  # the message says: lease expired, host rebooted, supervisor or launcher killed, …
    DEPENDENCY_FAILED = "dependency_failed"  # of a job, never of an attempt: another did not end as `after` asks for
    DEVICE_FAULT = "device_fault"  # NVML confirms it; ranks and supervisors can only suspect it


SKIPPED = "skipped"
"""Shown as the state of a job that failed because a job that it waits for did not end as required."""


def shown_state(state: JobState, code: str) -> str:
    """Returns the state as people read it, by the code of its reason."""
    return SKIPPED if state is JobState.FAILED and code == EndReason.DEPENDENCY_FAILED else state


@dataclass(frozen=True)
class Outcome:
    """What the end of an attempt does to its job."""

    state: JobState
    counted: bool = False  # the retry counts against `max_restarts`


OUTCOMES: dict[EndReason, Outcome] = {
    EndReason.COMPLETED: Outcome(JobState.SUCCEEDED),
    EndReason.USER_ERROR: Outcome(JobState.QUEUED, counted=True),
    EndReason.OUT_OF_MEMORY: Outcome(JobState.QUEUED, counted=True),
    EndReason.HANG: Outcome(JobState.QUEUED, counted=True),
    EndReason.KILLED: Outcome(JobState.QUEUED, counted=True),
    EndReason.LAUNCH_FAILED: Outcome(JobState.QUEUED, counted=True),
    EndReason.DATA_ERROR: Outcome(JobState.FAILED),
    EndReason.CONFIG_ERROR: Outcome(JobState.FAILED),
    EndReason.TIME_LIMIT: Outcome(JobState.FAILED),
    EndReason.IDLE_TIMEOUT: Outcome(JobState.FAILED),
    EndReason.CANCELLED: Outcome(JobState.CANCELLED),
    EndReason.PAUSED: Outcome(JobState.PAUSED),
    EndReason.PREEMPTED: Outcome(JobState.QUEUED),
    EndReason.WORKER_LOST: Outcome(JobState.QUEUED),
    EndReason.DEPENDENCY_FAILED: Outcome(JobState.FAILED),
    EndReason.DEVICE_FAULT: Outcome(JobState.QUEUED),
}
"""`QUEUED` means a retry, if `max_restarts` and the crash-loop cap allow one. Otherwise the job fails."""

CRASH_LOOP_CAP = 10
"""After so many attempts in a row without a new checkpoint (of a later step than their start), uncounted retries end
too. Preempted and paused attempts are not among them."""
