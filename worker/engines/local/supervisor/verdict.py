"""Decides how an attempt ended that nobody stopped, by what its launcher and its ranks left behind."""

import os
from pathlib import Path
import signal

from torchyard.contract.attempts import last_error
from torchyard.contract.attempts.last_error import device_fault, is_lost_peer
from torchyard.contract.attempts.records import ExitReport, ProcessIdentity, RankError
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.states import EndReason
from torchyard.host import disk
from torchyard.host.untrusted import read_untrusted
from worker.engines.local.launchers.logtail import tail_of_stderr

_OWN = f"{Path(last_error.__file__).parents[1]}{os.sep}"
"""The folder of our own package, whose code is not the job's."""
_QUOTE_LENGTH = 1000
"""The most characters of a quoted error message."""
_SIGNALLED = 128
"""What a shell adds to the number of the signal that killed a program, for its own exit code."""
_COLLECTIVE_TIMEOUT = "Watchdog caught collective operation timeout"
"""NCCL prints this before it aborts a rank whose collective did not end in time."""


def judge(
    run: RunDir, *, launcher_exit: int, ranks: range, failures: list[tuple[int, int]], command: bool = False
) -> ExitReport:
    """Returns the report of an attempt whose launcher exited by itself.

    `launcher_exit`: its exit code, or minus the number of the signal that killed it. `ranks`: those of this host.
    `failures`: the rank and the exit code of each failed rank, the first one in front. A recorded error of a rank comes
    first, then a rank that ended without one, then an error that only says that a peer was lost. `command`: the
    launcher is the job's command.
    """
    if launcher_exit == 0:
        return ExitReport(reason=EndReason.COMPLETED)
    stderr = tail_of_stderr(run, run.launcher)
    failures = [(rank, code) for rank, code in failures if rank in ranks]  # a job may forge them
    errors = _by_cause(run, ranks)
    if errors and not blames_a_peer(errors[0]):
        return _from_error(run, errors[0], dict(failures))
    full = disk.probe_full_disk(run.root) if launcher_exit > 0 and not errors else None
    if full is not None:  # the ranks could not record their errors
        return ExitReport(reason=EndReason.WORKER_LOST, message=f"a disk of the worker is full: {full}")
    silent = _first_silent_failure(failures, recorded={error.rank for error in errors})
    if silent is not None:
        return _from_exit_code(run, *silent, command=command)
    if errors and launcher_exit > 0:
        return _from_error(run, errors[0], dict(failures))
    return _from_launcher(run, launcher_exit, stderr, ranks)


def raised(run: RunDir, *, ranks: range) -> ExitReport | None:
    """Returns the report of the first error that a rank recorded.

    Returns None if there is no error, or if all errors say that a peer was lost.
    """
    errors = _by_cause(run, ranks)
    return _from_error(run, errors[0], {}) if errors and not blames_a_peer(errors[0]) else None


def blames_a_peer(error: RankError | ExitReport) -> bool:
    """Returns whether it only says that a peer was lost: another error is the cause."""
    if error.reason is EndReason.DEVICE_FAULT:  # NCCL reports it with the same error type as a lost peer
        return False
    named = f"{error.type}: " if isinstance(error, RankError) else ""
    return is_lost_peer(f"{named}{error.message}\n{error.traceback}")


def _by_cause(run: RunDir, ranks: range) -> list[RankError]:
    by_rank = {rank: read_untrusted(run.errors / f"{rank}.json", RankError) for rank in ranks}
    errors = [error for rank, error in by_rank.items() if error is not None and error.rank == rank]
    return sorted(errors, key=lambda error: (blames_a_peer(error), error.time))


def _first_silent_failure(failures: list[tuple[int, int]], *, recorded: set[int]) -> tuple[int, int] | None:
    """Returns the first rank that failed without recording an error.

    A later rank that SIGTERM ended is no failure: the launcher ends the other ranks of a failed group by SIGTERM.
    """
    for position, (rank, code) in enumerate(failures):
        if rank not in recorded and (position == 0 or code != -signal.SIGTERM):
            return rank, code
    return None


def _came_up(run: RunDir, ranks: range) -> bool:
    return any(read_untrusted(run.ranks / f"{rank}.json", ProcessIdentity) for rank in ranks)


def _from_launcher(run: RunDir, launcher_exit: int, stderr: str, ranks: range) -> ExitReport:
    """Returns the report of an attempt of which only the launcher's exit is known."""
    if launcher_exit < 0:  # the launcher runs no code of the user
        return ExitReport(reason=EndReason.WORKER_LOST, message=f"the launcher {_describe_exit(launcher_exit)}")
    came_up = _came_up(run, ranks)
    reason = EndReason.USER_ERROR if came_up else EndReason.LAUNCH_FAILED
    started = "the launcher" if came_up else "the ranks never came up: the launcher"
    return ExitReport(
        reason=reason,
        message=f"{started} {_describe_exit(launcher_exit)}{_last_line(stderr)}",
        traceback=stderr or None,
    )


def _from_error(run: RunDir, error: RankError, codes: dict[int, int]) -> ExitReport:
    left = error.type == "SystemExit"
    said = _usage_error(run, error.rank, codes.get(error.rank)) if left else None
    cause = _error_before_exit(run, error) if left and said is None else _error_of_child(run, error)
    prefix = f"rank {error.rank}" if left or cause is not None else error.type
    complete = error.reason in (EndReason.DATA_ERROR, EndReason.CONFIG_ERROR, EndReason.WORKER_LOST)
    # torchrun ends the other ranks of a failed group by SIGTERM: it may hit a rank that is exiting with its own error.
    code = codes.get(error.rank, 1)
    # A job may claim a full disk, for a retry that does not count.
    unconfirmed = error.reason is EndReason.WORKER_LOST and not disk.is_short(run.root)
    return ExitReport(
        reason=EndReason.USER_ERROR if unconfirmed else error.reason,
        message=error.message
        if complete
        else f"{prefix}: {said or (cause and cause.line[:_QUOTE_LENGTH]) or last_error.short_call(error.message)}",
        rank=error.rank,
        exit_code=1 if code == -signal.SIGTERM else code,
        traceback=None if said else error.traceback if cause is None or cause.traceback is None else cause.traceback,
    )


def _from_exit_code(run: RunDir, rank: int, code: int, *, command: bool) -> ExitReport:
    """Returns the report of a rank that recorded no error. A command has no record: its stderr shows its error."""
    name = "the command" if command else f"rank {rank}"
    stderr = tail_of_stderr(run, f"rank-{rank}")
    fatal = stderr.rpartition("Fatal Python error:")  # faulthandler prints it for a crash in native code
    # NCCL's watchdog is often the first to meet a device fault: it prints the fault and aborts the process.
    fault = device_fault(stderr) if code == -signal.SIGABRT else None
    hang = _line_with(_COLLECTIVE_TIMEOUT, stderr) if code == -signal.SIGABRT and not fault else None
    other = EndReason.KILLED if code < 0 else EndReason.USER_ERROR
    quoted = fault or hang or _usage_error(run, rank, code)
    trace = fatal[1] and fatal[1] + fatal[2]
    if command and code > 0 and not quoted and (error := last_error.said(stderr, without=_OWN)) is not None:
        quoted, trace = error.line, trace or error.traceback
    return ExitReport(
        reason=EndReason.DEVICE_FAULT if fault else EndReason.HANG if hang else other,
        message=f"{name} {_describe_exit(code)}" + (f": {quoted[:_QUOTE_LENGTH]}" if quoted else ""),
        rank=rank,
        exit_code=code,
        traceback=trace or None,
    )


def _error_before_exit(run: RunDir, error: RankError) -> last_error.Said | None:
    """Returns the error that a program showed itself before it left with an exit code, as Hydra has it do."""
    if not error.message.startswith("exited with code"):
        return None
    return last_error.ended_by(tail_of_stderr(run, f"rank-{error.rank}"), without=_OWN)


def _error_of_child(run: RunDir, error: RankError) -> last_error.Said | None:
    """Returns the error of a program that the rank has run, if that is what failed."""
    if error.type != "CalledProcessError":
        return None
    message = last_error.said(tail_of_stderr(run, f"rank-{error.rank}"), without=_OWN)
    return None if message is None or error.type in message.line else message


def _usage_error(run: RunDir, rank: int, code: int | None) -> str | None:
    """Returns what the program said of its arguments. Its traceback would blame the line that reads them."""
    message = last_error.wrong_argument(tail_of_stderr(run, f"rank-{rank}"), exit_code=code)
    return None if message is None else message[:_QUOTE_LENGTH]


def _describe_exit(code: int) -> str:
    if code >= 0:
        ended = code - _SIGNALLED in {signal.SIGABRT, signal.SIGBUS, signal.SIGKILL, signal.SIGSEGV}
        return f"exited with code {code}" + (
            f", as a program that it ran {_describe_exit(_SIGNALLED - code)}" if ended else ""
        )
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was killed by {name}" + (" (perhaps the host ran out of memory)" if code == -signal.SIGKILL else "")


def _line_with(phrase: str, text: str) -> str | None:
    return next((line.strip() for line in text.splitlines() if phrase in line), None)


def _last_line(stderr: str) -> str:
    lines = stderr.rstrip().splitlines()
    return f": {lines[-1].strip()[:1000]}" if lines else ""
