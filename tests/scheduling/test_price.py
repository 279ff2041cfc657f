"""What a running job loses if it stops now."""

import pytest

from scheduling.price import lost_steps, lost_us


@pytest.mark.parametrize(
    ("since", "saved_at", "lost"),
    [
        (40, None, 240),
        (40, 90, 40),
        (40, 100, 0),
        (40, 20, 240),
        (40, 130, 0),
        (130, None, 0),
        (130, 90, 0),
    ],
    ids=["no checkpoint", "one", "just now", "of an earlier attempt", "in the future", "clock jumped", "both"],
)
def test_device_time_counts_from_the_start_or_the_newest_checkpoint(
    since: int, saved_at: int | None, lost: int
) -> None:
    assert lost_us(now=100, since=since, saved_at=saved_at, devices=4) == lost


@pytest.mark.parametrize(
    ("told", "saved", "lost"),
    [
        (3412, 3000, 412),
        (3412, None, 3412),
        (3000, 3000, 0),
        (2999, 3000, None),
        (-1, None, None),
        (2**63, 3000, None),
        (True, None, None),
        (float("nan"), None, None),
        ("412", None, None),
        (None, 3000, None),
    ],
)
def test_steps_that_cannot_be_true_are_not_counted(told: object, saved: int | None, lost: int | None) -> None:
    assert lost_steps(told, saved=saved) == lost
