"""On which host a job starts, among those where it may start now: its home, or the one with the least left over."""

from collections.abc import Sequence
from typing import Literal

from scheduling.belief import believed_length, most_left
from scheduling.cluster import Cluster, Keep, delays, spare_sorts
from scheduling.room import Room
from scheduling.snapshot import Waiting

Passage = Literal["passes", "guest"]


def open_room(cluster: Cluster, job: Waiting) -> Room | None:
    """Returns the host on which the job starts without regard to what it delays; None if it fits on none.

    What is kept for a lower priority is used last.
    """
    rooms: list[tuple[bool, bool, tuple[int, str], Room]] = []
    for room in cluster.fitting(job):
        if not cluster.before(job, room):
            place = room.host.id, room.kind(job.resources)
            taken = place in cluster.keeps and cluster.keeps[place].job.id != job.id
            rooms.append((taken, room.host.id != job.home, room.left_over(room.want(job)), room))
    return min(rooms, key=lambda one: one[:3])[3] if rooms else None


def passage(cluster: Cluster, job: Waiting) -> tuple[Room, Passage] | None:
    """Returns on which kept host the job may start before its holder, and how; None if on none."""
    passages: list[tuple[bool, tuple[int, str], Room, Passage]] = [
        (how == "guest", room.left_over(room.want(job)), room, how)
        for room in cluster.fitting(job)
        if (how := _how(cluster, job, room)) is not None
    ]
    return min(passages, key=lambda one: one[:2])[2:] if passages else None


def _how(cluster: Cluster, job: Waiting, room: Room) -> Passage | None:
    keeps = cluster.before(job, room)
    added = cluster.holder_of(job)
    added.counts = room.pick(room.want(job), last=spare_sorts(room, keeps))
    if not delays(keeps, added, now=cluster.now):
        return "passes"
    return "guest" if _may_be_guest(cluster, job, keeps) else None


def _may_be_guest(cluster: Cluster, job: Waiting, keeps: Sequence[Keep]) -> bool:
    """Returns whether the job is believed to end before these holders can start."""
    length_us = believed_length(job)
    if not job.preemptible or length_us >= most_left(job):
        return False
    return all(cluster.now + length_us <= keep.forecast(cluster.now).due for keep in keeps)
