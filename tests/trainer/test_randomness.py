"""The seeds of ranks and of resumes, and of other jobs."""

from itertools import product

from trainer.randomness import derived_seed


def test_no_two_jobs_ranks_or_resumes_share_a_seed() -> None:
    seeds = range(-3, 40)
    derived = [derived_seed(seed, rank) for seed, rank in product(seeds, range(8))]
    derived += [derived_seed(seed, rank, step) for seed, rank, step in product(seeds, range(8), range(1, 12))]
    assert len(set(derived)) == len(derived)
    assert not set(derived) & set(seeds)
    assert all(0 <= seed < 2**63 for seed in derived)
    assert derived_seed(42, 1) == derived_seed(42, 1)
