"""What a supervisor writes about the attempt's end: the exit report, and its own log."""

import contextlib
import os
import sys

from torchyard.contract.job import EndReason
from torchyard.contract.records import ExitReport
from torchyard.contract.rundir import RunDir
from torchyard.host.disk import PASSING, retry_while_unavailable
from torchyard.host.recordfiles import write_record

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


def log(text: str) -> None:
    """Writes to supervisor.log. Ignores an error: the log may be on a full disk."""
    with contextlib.suppress(OSError):
        os.write(2, f"{text}\n".encode())
