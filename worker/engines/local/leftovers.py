"""Ends processes of attempts that are closed."""

from collections.abc import Collection
from datetime import timedelta
import logging
import os
from pathlib import Path
import time

from torchyard.contract.attempts.records import ProcessIdentity, StopRequest
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.states import EndReason
from torchyard.host.recordfiles import write_record
from torchyard.host.untrusted import read_untrusted
from worker.host import orphans, process
from worker.host.attempt_key import AttemptKey

_POLL_S = 0.25
DEADLINE_S = 10.0

logger = logging.getLogger(__name__)


def kill_attempt(run: RunDir, key: AttemptKey) -> list[ProcessIdentity]:
    """Stops every process of a closed attempt: first through its supervisor, then by a search.

    Returns the processes that cannot be killed.
    """
    supervisor = read_untrusted(run.supervisor, ProcessIdentity)
    try:
        if run.root.exists():
            write_record(run.stop, StopRequest(reason=EndReason.WORKER_LOST, grace=timedelta()))
    except OSError as error:
        logger.warning("%s: cannot write a stop request; killing its processes: %s", key.job_id, error)
        supervisor = None
    deadline = time.monotonic() + DEADLINE_S
    while supervisor is not None and process.is_alive(supervisor) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    unkillable = orphans.kill_attempt(key.job_id, key.number, timeout=timedelta(seconds=DEADLINE_S))
    if unkillable:
        logger.error("%s: %s", key.job_id, process.describe_unkillable(unkillable))
    return unkillable


def kill_leftovers(runs: Path, keep: Collection[AttemptKey]) -> None:
    """Stops the processes of attempts that were rescued while this worker was away."""
    for path in runs.glob("job_*/[1-9]*"):
        if not path.name.isdecimal():
            continue
        key, run = AttemptKey(path.parent.name, int(path.name)), RunDir(path)
        if key in keep or not _may_run(run, key):
            continue
        logger.warning("%s: attempt %d was rescued; stopping its processes", key.job_id, key.number)
        kill_attempt(run, key)


def _may_run(run: RunDir, key: AttemptKey) -> bool:
    if not os.path.lexists(run.supervisor):
        return False
    supervisor = read_untrusted(run.supervisor, ProcessIdentity)
    if supervisor is not None and process.is_alive(supervisor):
        return True
    return not os.path.lexists(run.exit) and bool(process.find(key.job_id, key.number))
