"""What runs of attempts that are closed, and its end."""

from datetime import timedelta
import logging
from pathlib import Path
import time

from store.rows.attempts import Claim
from torchyard.job import EndReason
from torchyard.rundir import ProcessIdentity, RunDir, StopRequest, write_record
from worker.engines.local import orphans, process
from worker.untrusted import read_untrusted

_POLL_S = 0.25
_DEADLINE_S = 10.0

logger = logging.getLogger(__name__)


def kill_attempt(run: RunDir, claim: Claim) -> list[ProcessIdentity]:
    """Stops every process of an attempt whose records are closed: first by its supervisor, then by search.

    Returns those that cannot be killed.
    """
    supervisor = read_untrusted(run.supervisor, ProcessIdentity)
    try:
        if run.root.exists():
            write_record(run.stop, StopRequest(reason=EndReason.WORKER_LOST, grace=timedelta()))
    except OSError as error:
        logger.warning("%s: cannot write a stop, its processes are killed at once: %s", claim.job_id, error)
        supervisor = None
    deadline = time.monotonic() + _DEADLINE_S
    while supervisor is not None and process.is_alive(supervisor) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    left = orphans.kill_attempt(claim.job_id, claim.number, timeout=timedelta(seconds=_DEADLINE_S))
    if left:
        logger.error("%s: %s", claim.job_id, process.stubborn(left))
    return left


def kill_strays(runs: Path, adopted: list[Claim]) -> None:
    """Stops what still runs here of attempts that were rescued while this worker was away."""
    ours = {(claim.job_id, str(claim.number)) for claim in adopted}
    for path in runs.glob("job_*/[0-9]*/supervisor.json"):
        run = RunDir(path.parent)
        claim = Claim(attempt_id=0, job_id=run.root.parent.name, number=int(run.root.name))
        if (claim.job_id, run.root.name) in ours or not _may_run(run, claim):
            continue
        logger.warning("%s: attempt %d was rescued; its processes are stopped", claim.job_id, claim.number)
        kill_attempt(run, claim)


def _may_run(run: RunDir, claim: Claim) -> bool:
    supervisor = read_untrusted(run.supervisor, ProcessIdentity)
    if supervisor is not None and process.is_alive(supervisor):
        return True
    return not run.exit.exists() and bool(process.find(claim.job_id, claim.number))
