"""What a supervisor writes about the attempt's end: the exit report, messages to the owner, and its own log."""

import contextlib
import os
import sys
import time
from typing import Literal

from torchyard.contract.attempts.events import Message
from torchyard.contract.attempts.records import ExitReport, LaunchPlan
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.states import EndReason
from torchyard.host.disk import PASSING, retry_while_unavailable
from torchyard.host.recordfiles import write_record
from torchyard.host.untrusted import append_untrusted

_REPORT_RETRY_S = 600.0
"""For so long, a full disk is tried again for the exit report."""


def launch_failure(message: str, error: OSError) -> ExitReport:
    """Returns the report of a launch that failed. An error that may pass, such as a process limit, costs no restart."""
    reason = EndReason.WORKER_LOST if error.errno in PASSING else EndReason.LAUNCH_FAILED
    return ExitReport(reason=reason, message=message)


def write_report(run: RunDir, report: ExitReport) -> None:
    """Writes `exit.json`. Waits a while for a full disk: without the report, the attempt would run again."""

    def write() -> None:
        write_record(run.exit, report)

    def log_refusal(error: OSError) -> None:
        log(f"{run.exit} cannot be written: {error}; trying again")

    try:
        retry_while_unavailable(write, seconds=_REPORT_RETRY_S, errnos=PASSING, on_error=log_refusal)
    except OSError as error:
        sys.exit(f"{run.exit} cannot be written: {error}; it would say: {report.to_json()}")


def tell_owner(run: RunDir, plan: LaunchPlan, text: str, *, level: Literal["info", "warning"] = "warning") -> None:
    """Sends the job's owner a message, by an event after those of rank 0, which has ended: only its node can."""
    log(text)
    if 0 not in plan.ranks:
        return
    line = Message(time=time.time_ns() // 1000, level=level, text=text).to_json()
    append_untrusted(run.events, f"\n{line}\n".encode())  # rank 0 may have been killed inside a line


def log(text: str) -> None:
    """Writes to supervisor.log. Ignores an error: the log may be on a full disk."""
    with contextlib.suppress(OSError):
        os.write(2, f"{text}\n".encode())
