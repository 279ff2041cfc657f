"""The plan, without a database: against what was recorded, by examples, and by what holds of all plans."""

from scheduling.plan import plan
from tests.scheduling.outcomes import recorded
from tests.scheduling.snapshots import outcome_of, snapshot_of
from tests.scheduling.worlds import COUNT, world


def test_a_plan_is_what_the_scheduler_before_it_did() -> None:
    expected = recorded()
    assert len(expected) == COUNT
    for number in range(COUNT):
        snapshot = snapshot_of(world(number))
        assert outcome_of(plan(snapshot), snapshot) == expected[number], number
