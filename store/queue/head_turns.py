"""Which groups a pass over the line looks at: of an owner with very many, some in turn."""

from collections import defaultdict
from collections.abc import Mapping

from scheduling.snapshot import Group
from store.jobs.shapes import owner_of
from store.queue.line_facts import Member

MOST_OF_OWNER = 64
"""The most groups of one owner in one pass: what a pass costs rises with the groups, and an owner makes as many as
there are different requests."""
_IN_TURN = MOST_OF_OWNER // 2


def in_turn(heads: Mapping[Group, Member], turn: int) -> dict[Group, Member]:
    """Returns the groups at which a pass looks. As `turn` rises from pass to pass, all are looked at.

    Of an owner with more than `MOST_OF_OWNER` one half are those that come first, and the others take turns.
    """
    owners: dict[str, list[Group]] = defaultdict(list)
    for group in heads:
        owners[owner_of(group[0])].append(group)
    found: dict[Group, Member] = {}
    for groups in owners.values():
        found |= {group: heads[group] for group in _some(groups, heads, turn)}
    return found


def _some(groups: list[Group], heads: Mapping[Group, Member], turn: int) -> list[Group]:
    if len(groups) <= MOST_OF_OWNER:
        return groups
    ordered = sorted(groups, key=lambda group: (-group[1], heads[group].order))
    always, others = ordered[: MOST_OF_OWNER - _IN_TURN], ordered[MOST_OF_OWNER - _IN_TURN :]
    first = turn * _IN_TURN % len(others)
    return always + (others + others)[first : first + _IN_TURN]
