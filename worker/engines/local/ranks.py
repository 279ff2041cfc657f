"""Finds the ranks of an attempt that run."""

from torchyard.contract.records import ProcessIdentity
from torchyard.contract.rundir import RunDir
from torchyard.contract.untrusted import read_untrusted
from worker.engines.local import process


def running_ranks(run: RunDir, *, supervisor: int, world_size: int) -> dict[int, ProcessIdentity]:
    """Returns the ranks that run, by number. A record that names a process not below the supervisor is ignored.

    `supervisor` is a pid. The caller knows whose it is.
    """
    descendants = process.descendants(supervisor)
    recorded = {rank: read_untrusted(run.ranks / f"{rank}.json", ProcessIdentity) for rank in range(world_size)}
    return {rank: found for rank, found in recorded.items() if found is not None and found in descendants}
