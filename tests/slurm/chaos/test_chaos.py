"""A short chaos run of a pool. `python -m tests.slurm.chaos` makes longer ones."""

from pathlib import Path

import pytest

from tests.slurm.chaos.run import run
from tests.slurm.chaos.watch import doubled

pytestmark = pytest.mark.slurm


@pytest.mark.timeout(900)
def test_nothing_is_lost_or_doubled_while_slurm_and_the_worker_are_broken(lab_folder: Path) -> None:
    report = run(lab_folder, seed=31, faults=8, jobs=3)
    assert sum(report.faults.values()) == 8
    assert report.violations == []


def test_two_live_attempts_of_a_job_and_two_processes_of_a_rank_are_seen() -> None:
    ranks = ["torchyard:job_a attempt 1 rank 0", "torchyard:job_a attempt 1 rank 1", "sleep 1"]
    assert doubled(ranks) == set()
    assert len(doubled([*ranks, "torchyard:job_a attempt 2 rank 0"])) == 1
    assert len(doubled([*ranks, ranks[0]])) == 1
    assert doubled([*ranks, "torchyard:job_b attempt 2 rank 0"]) == set()
