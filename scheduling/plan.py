"""The plan of all workers for a snapshot: which jobs start, which stop, which places are kept, and why others wait."""

from scheduling.snapshot import Group, Snapshot
from scheduling.steps import Plan


def plan(snapshot: Snapshot) -> Plan:
    """Returns what all workers do. Equal snapshots give equal plans, in whatever order they list.

    A worker carries out the steps on its own devices and jobs, and stores the reservations of its own places.
    """
    raise NotImplementedError


def used_up(snapshot: Snapshot) -> set[Group]:
    """Returns the groups of which no job in the line waits: to be complete, the line needs their next jobs."""
    raise NotImplementedError
