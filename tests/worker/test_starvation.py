"""A job that needs a whole host starts, although smaller ones keep coming."""

import pytest

from tests.databases import on_both
from tests.worker.schedulers import SchedulersFixture, slot

SLOTS = 4
ENDS = 12


@pytest.mark.parametrize("owner", [pytest.param("ada", marks=pytest.mark.thorough), "others"])
@on_both
def test_a_job_of_all_slots_starts_although_a_new_one_comes_at_each_end(
    schedulers: SchedulersFixture, owner: str
) -> None:
    """Four jobs of one slot run on four slots, and one of four slots waits. At each of twelve ends a new job of one
    slot is submitted, by the same owner or by one who has used nothing so far.

    A queue that starts whatever fits would start all twelve, and never the job of four slots. This one keeps the host
    for it: it starts at the fourth end, before all of the twelve.
    """
    box = schedulers.scheduler("box", *(slot(index) for index in range(SLOTS)))
    running = [box.start_job(f"cpu-{index}") for index in range(SLOTS)]
    large = schedulers.submit(SLOTS)
    box.run_pass()
    for number in range(1, ENDS + 1):
        schedulers.store.complete(running.pop(0))
        schedulers.store.submit(owner=owner if owner == "ada" else f"other-{number}")
        before = len(box.taken)
        box.run_pass()
        running += [box.claims[job_id] for job_id in box.taken[before:]]
        if number < SLOTS:
            assert box.taken == [], f"at end {number} of {SLOTS}"
    assert box.taken[0] == large
    assert len(box.taken) == 1 + SLOTS + ENDS - SLOTS - 1, "four at its end, and one at each further end"
