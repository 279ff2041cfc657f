"""How an attempt ended that nobody stopped: what its launcher and its ranks left behind, weighed."""

import re
import signal

from torchyard.contract import disk
from torchyard.contract.faults import device_fault
from torchyard.contract.job import EndReason
from torchyard.contract.records import ExitReport, ProcessIdentity, RankError
from torchyard.contract.rundir import RunDir
from torchyard.contract.untrusted import read_untrusted
from worker.engines.local.logtail import quote

_FAULT = 1000  # characters of a fault's own words
_LOST_PEER = re.compile(
    r"Dist(Network|Backend|Store)Error|Connection (closed|reset|refused)|Broken pipe|NCCL error|gloo/transport|TCPStore"
)
"""What a rank says when another one is gone: seldom the cause."""
_STUCK = "Watchdog caught collective operation timeout"
"""What NCCL prints before it aborts a rank whose collective has not ended in time."""


def judge(run: RunDir, *, launcher_exit: int, world_size: int, deaths: list[tuple[int, int]]) -> ExitReport:
    """The report of an attempt whose launcher left with `launcher_exit` (minus a signal's number) of its own accord,
    and saw the `deaths` of ranks: each one's rank and exit code, the first one in front.

    A rank's own error comes first, then a rank that ended without a word, then what only says that a peer was lost.
    """
    if launcher_exit == 0:
        return ExitReport(reason=EndReason.COMPLETED)
    stderr = quote(run, "launcher")
    errors = _by_cause(run, world_size)
    if errors and not _blames_a_peer(errors[0]):
        return _raised(errors[0], dict(deaths))
    full = disk.probe_full_disk(run.root) if launcher_exit > 0 and not errors else None
    if full is not None:  # nobody could say why
        return ExitReport(reason=EndReason.WORKER_LOST, message=f"a disk of the worker is full: {full}")
    silent = _silent(deaths, spoke={error.rank for error in errors})
    if silent is not None:
        return _died(run, *silent)
    if errors and launcher_exit > 0:
        return _raised(errors[0], dict(deaths))
    return _left_alone(run, launcher_exit, stderr, world_size)


def raised(run: RunDir, *, world_size: int) -> ExitReport | None:
    """The report of the first error that a rank recorded; None without any, or where all say that a peer was lost."""
    errors = _by_cause(run, world_size)
    return _raised(errors[0], {}) if errors and not _blames_a_peer(errors[0]) else None


def _by_cause(run: RunDir, world_size: int) -> list[RankError]:
    found = (read_untrusted(run.errors / f"{rank}.json", RankError) for rank in range(world_size))
    errors = [error for error in found if error is not None]
    return sorted(errors, key=lambda error: (_blames_a_peer(error), error.time))


def _blames_a_peer(error: RankError) -> bool:
    if error.reason is EndReason.DEVICE_FAULT:  # NCCL tells of both in the same words
        return False
    return _LOST_PEER.search(f"{error.type}: {error.message}\n{error.traceback}") is not None


def _silent(deaths: list[tuple[int, int]], *, spoke: set[int]) -> tuple[int, int] | None:
    """The first rank that ended without an error of its own; torchrun ends the others of a failed group by SIGTERM."""
    for position, (rank, code) in enumerate(deaths):
        if rank not in spoke and (position == 0 or code != -signal.SIGTERM):
            return rank, code
    return None


def _came_up(run: RunDir, world_size: int) -> bool:
    return any(read_untrusted(run.ranks / f"{rank}.json", ProcessIdentity) for rank in range(world_size))


def _left_alone(run: RunDir, launcher_exit: int, stderr: str, world_size: int) -> ExitReport:
    """The report of a launcher that left for a reason of its own, as far as anybody knows."""
    if launcher_exit < 0:  # no code of the user's is in it
        return ExitReport(reason=EndReason.WORKER_LOST, message=f"the launcher {_left(launcher_exit)}")
    came_up = _came_up(run, world_size)
    reason = EndReason.USER_ERROR if came_up else EndReason.LAUNCH_FAILED
    started = "the launcher" if came_up else "the ranks never came up: the launcher"
    return ExitReport(
        reason=reason, message=f"{started} {_left(launcher_exit)}{_last_line(stderr)}", traceback=stderr or None
    )


def _raised(error: RankError, codes: dict[int, int]) -> ExitReport:
    said = f"rank {error.rank}" if error.type == "SystemExit" else error.type
    own_words = error.reason in (EndReason.DATA_ERROR, EndReason.CONFIG_ERROR, EndReason.WORKER_LOST)
    # torchrun ends the others of a failed group by SIGTERM, and may hit one that is just leaving with its own error.
    code = codes.get(error.rank, 1)
    return ExitReport(
        reason=error.reason,
        message=error.message if own_words else f"{said}: {error.message}",
        rank=error.rank,
        exit_code=1 if code == -signal.SIGTERM else code,
        traceback=error.traceback,
    )


def _died(run: RunDir, rank: int, code: int) -> ExitReport:
    stderr = quote(run, f"rank-{rank}")
    fatal = stderr.rpartition("Fatal Python error:")  # faulthandler's, for a crash in native code
    # NCCL's watchdog, which is often the first to meet a fault, prints it and aborts the process.
    fault = device_fault(stderr) if code == -signal.SIGABRT else None
    stuck = _line_with(_STUCK, stderr) if code == -signal.SIGABRT and not fault else None
    killed = EndReason.KILLED if code < 0 else EndReason.USER_ERROR
    words = fault or stuck
    return ExitReport(
        reason=EndReason.DEVICE_FAULT if fault else EndReason.HANG if stuck else killed,
        message=f"rank {rank} {_left(code)}" + (f": {words[:_FAULT]}" if words else ""),
        rank=rank,
        exit_code=code,
        traceback=fatal[1] + fatal[2] if fatal[1] else None,
    )


def _left(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was killed by {name}" + (" (perhaps the host ran out of memory)" if code == -signal.SIGKILL else "")


def _line_with(words: str, text: str) -> str | None:
    return next((line.strip() for line in text.splitlines() if words in line), None)


def _last_line(stderr: str) -> str:
    lines = stderr.rstrip().splitlines()
    return f": {lines[-1].strip()[:1000]}" if lines else ""
