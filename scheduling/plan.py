"""The plan of all workers for a snapshot: which jobs start, which stop, which places are kept, and why others wait."""

from scheduling.snapshot import Snapshot
from scheduling.steps import Plan
from scheduling.walk import Walk


def plan(snapshot: Snapshot) -> Plan:
    """Returns what all workers do. Equal snapshots give equal plans, in whatever order they list.

    A worker carries out the steps on its own devices and jobs. While `used_up` names groups that have more jobs, the
    line is not complete: the plan must be made again with their next ones.
    """
    walk = Walk(snapshot)
    walk.run()
    return walk.plan()
