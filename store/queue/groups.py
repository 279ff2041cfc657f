"""Groups of waiting jobs: found in the line, which Redis may have otherwise than the rows, and read by their rows."""

from collections import defaultdict
from collections.abc import Collection, Mapping

from sqlalchemy.orm import Session

from scheduling.snapshot import Group, Waiting
from store.jobs.shapes import owner_of
from store.queue import waiting
from store.queue.line.line import line_of
from store.queue.line_facts import Member

MOST_OF_OWNER = 64
"""The most groups of one owner in one pass: what a pass costs rises with the groups, and an owner makes as many as
there are different requests."""
_IN_TURN = MOST_OF_OWNER // 2
_MOST_READ = 10_000
"""Of jobs of one group that wait no more: Redis is far from the rows then, and a sweep comes soon."""


class Groups:
    """Of one transaction. Jobs of which the line and the rows say different things are left out, and compared later."""

    def __init__(self, session: Session, *, turn: int = 0) -> None:
        """`turn` says which groups of an owner with very many are found, as `in_turn` has it."""
        self._session = session
        self._line = line_of(session)
        self._turn = turn
        self.crowded: frozenset[str] = frozenset()
        """The owners of whose groups some were not looked at."""
        self._newest: dict[Group, Member] = {}
        """The last job that was read of each group that goes on."""

    def heads(self, *, also: Group | None = None) -> list[Waiting]:
        """Returns the first job of each group, in no order, but of an owner with very many groups of some of them.

        Leaves out a group whose request only a newer program reads. `also`: a group that is found if there is any.
        """
        firsts = self._line.heads()
        self._newest = in_turn(firsts, self._turn)
        if also is not None and also in firsts:
            self._newest[also] = firsts[also]
        heads, strange = self._verified({member.id: group for group, member in self._newest.items()})
        for group in strange:
            heads += self.more(group, limit=1)
        left_out = {owner_of(shape) for shape, priority in firsts if (shape, priority) not in self._newest}
        self.crowded = frozenset(job.owner for job in heads if owner_of(job.shape) in left_out)
        return heads

    def going_on(self, groups: Collection[Group]) -> list[Group]:
        """Returns those of the groups that may have further jobs."""
        return [group for group in groups if group in self._newest]

    def more(self, group: Group, *, limit: int) -> list[Waiting]:
        """Returns the next jobs of a group that goes on, the oldest first, up to `limit`; none if it ends there."""
        for _ in range(0, _MOST_READ, limit):
            members = self._line.successors(group, self._newest[group], limit=limit)
            if len(members) < limit:
                del self._newest[group]
            else:
                self._newest[group] = members[-1]
            jobs, strange = self._verified({member.id: group for member in members})
            if jobs or len(strange) < len(members) or group not in self._newest:
                return jobs
        del self._newest[group]
        return []

    def _verified(self, groups: Mapping[str, Group]) -> tuple[list[Waiting], list[Group]]:
        """Returns the jobs that wait in these groups, by their rows, in this order, and the groups of the others."""
        rows = waiting.standing(self._session, groups)
        strange = [job_id for job_id, group in groups.items() if job_id not in rows or rows[job_id].group != group]
        self._line.suspects.update(strange)
        sound = [rows[job_id] for job_id in groups if job_id not in strange]
        return waiting.understood(self._session, sound), [groups[job_id] for job_id in strange]


def in_turn(heads: Mapping[Group, Member], turn: int) -> dict[Group, Member]:
    """Returns the groups at which a pass looks. As `turn` rises from pass to pass, all are looked at.

    Of an owner with more than `MOST_OF_OWNER` one half are those that come first, and the others take turns.
    """
    owners: dict[str, list[Group]] = defaultdict(list)
    for group in heads:
        owners[owner_of(group[0])].append(group)
    chosen: dict[Group, Member] = {}
    for groups in owners.values():
        chosen |= {group: heads[group] for group in _choose(groups, heads, turn)}
    return chosen


def _choose(groups: list[Group], heads: Mapping[Group, Member], turn: int) -> list[Group]:
    if len(groups) <= MOST_OF_OWNER:
        return groups
    ordered = sorted(groups, key=lambda group: (-group[1], heads[group].order))
    always, others = ordered[: MOST_OF_OWNER - _IN_TURN], ordered[MOST_OF_OWNER - _IN_TURN :]
    first = turn * _IN_TURN % len(others)
    return always + (others + others)[first : first + _IN_TURN]
