"""When the next replay of the line may begin."""

import pytest

from store.cluster.cluster_mark import ClusterMark
from worker.placement.pace import CHANGED_REST, LEAST_REST_S, UNCHANGED_REST, Pace

SEEN = ClusterMark(lined_at=1, running=2, kept=3, workers=4)


def test_the_first_replay_begins_at_once() -> None:
    assert Pace().may_begin(0.0, SEEN)


@pytest.mark.parametrize("changed", [SEEN._replace(**{name: 9}) for name in ClusterMark._fields])
def test_a_replay_rests_longer_while_nothing_has_changed(changed: ClusterMark) -> None:
    pace = Pace()
    pace.note(1000.0, cost_s=2.0, mark=SEEN)
    assert (CHANGED_REST, UNCHANGED_REST) == (20, 1000)
    assert not pace.may_begin(1039.9, changed)
    assert pace.may_begin(1040.0, changed)
    assert not pace.may_begin(2999.9, SEEN)
    assert pace.may_begin(3000.0, SEEN)


@pytest.mark.parametrize("cost_s", [0.0, 0.001])
def test_a_cheap_replay_rests_too(cost_s: float) -> None:
    pace = Pace()
    pace.note(10.0, cost_s=cost_s, mark=SEEN)
    changed = SEEN._replace(running=0)
    assert not pace.may_begin(10.0 + LEAST_REST_S - 0.1, changed)
    assert pace.may_begin(10.0 + LEAST_REST_S, changed)
    assert pace.may_begin(10.0 + LEAST_REST_S, SEEN)


def test_a_replay_that_came_to_no_result_is_paid_for_too() -> None:
    pace = Pace()
    pace.note(0.0, cost_s=3.0, mark=None)
    assert not pace.may_begin(59.9, SEEN)
    assert pace.may_begin(60.0, SEEN)
