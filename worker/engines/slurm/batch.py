"""`python -P -m worker.engines.slurm.batch RUN`: the coordinator of one attempt, on the first node of its Slurm job.

At most one starts for a claim, whatever Slurm does: it takes a lock that is never given back.
"""

import os
from pathlib import Path
import signal
import sys
import time

from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.errors import TorchyardError
from torchyard.contract.states import EndReason
from torchyard.host import inspection
from torchyard.host.untrusted import read_untrusted
from worker.engines.local.supervisor.ending import launch_failure, log, write_report
from worker.engines.slurm import sealing
from worker.engines.slurm.commands import KEY
from worker.engines.slurm.coordinator import Coordinator
from worker.engines.slurm.records import ClusterFiles, ClusterPlan
from worker.host import process

_HIDDEN_S = 90.0
"""For so long, a shared file system may hide a new file."""
_POLL_S = 0.5


def main() -> None:
    for number in (signal.SIGUSR1, signal.SIGTERM):  # until the coordinator has its own handlers
        signal.signal(number, _remember)
    inspection.forbid()
    os.umask(0o077)
    run = RunDir(Path(sys.argv[1]))
    text = os.environ.pop(KEY, "")
    if _must_leave(run):
        return
    try:
        report = _coordinate(run, sealing.parse_key(text))
    except TorchyardError as error:
        report = ExitReport(reason=EndReason.CONFIG_ERROR, message=error.message)
    except OSError as error:
        report = launch_failure(f"the attempt cannot be coordinated: {error}", error)
    write_report(run, report)


def read_plan(run: RunDir) -> ClusterPlan | None:
    """Reads the plan, which the file system may still hide. Returns None if it does not come."""
    deadline = time.monotonic() + _HIDDEN_S
    while True:
        plan = read_untrusted(ClusterFiles(run).plan, ClusterPlan)
        if plan is not None or time.monotonic() > deadline:
            return plan
        time.sleep(_POLL_S)


def _coordinate(run: RunDir, key: bytes) -> ExitReport:
    plan = read_plan(run)
    if plan is None:
        raise OSError(f"{ClusterFiles(run).plan} cannot be read")
    terminated = any(number == signal.SIGTERM for number in _remembered)
    return Coordinator(run, plan, key=key, environ=dict(os.environ), terminated=terminated).coordinate()


def _must_leave(run: RunDir) -> bool:
    """Returns whether this attempt has been started before, or is over. Takes its lock otherwise."""
    if os.environ.get("SLURM_RESTART_COUNT", "0") != "0":
        return _says("Slurm has requeued this job, which starts nothing again")
    if os.path.lexists(run.exit):
        return _says("the attempt has ended")
    me = process.identity(os.getpid())
    line = f"job {os.environ.get('SLURM_JOB_ID')} on {os.uname().nodename}: {me}\n"
    try:
        lock = os.open(ClusterFiles(run).lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return _says("another job has started this attempt")
    with os.fdopen(lock, "w") as file:
        file.write(line)
    return False


def _says(text: str) -> bool:
    log(f"torchyard: {text}")
    return True


_remembered: list[int] = []


def _remember(number: int, *_: object) -> None:
    _remembered.append(number)


if __name__ == "__main__":
    main()
