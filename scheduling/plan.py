"""The plan of all workers for a snapshot: which jobs start, which stop, which places are kept, and why others wait."""

from collections.abc import Generator

from scheduling.snapshot import Snapshot
from scheduling.steps import Plan
from scheduling.walk import Walk


def plan(snapshot: Snapshot) -> Plan:
    """Returns what all workers do. Equal snapshots give equal plans, in whatever order they list.

    A worker carries out the steps on its own devices and jobs. While `used_up` names groups that have more jobs, the
    line is not complete: the plan must be made again with their next ones.
    """
    slices = planning(snapshot)
    while True:
        try:
            next(slices)
        except StopIteration as ended:
            return ended.value


def planning(snapshot: Snapshot) -> Generator[None, None, Plan]:
    """Makes the plan in small pieces, and returns it."""
    walk = Walk(snapshot)
    yield
    yield from walk.walking()
    yield
    return walk.plan()
