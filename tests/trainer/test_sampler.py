from hypothesis import given
from hypothesis import strategies as st
import torch

from trainer.sampler import TrainSampler, evaluation_batches

sizes = st.integers(1, 200)
worlds = st.integers(1, 7)
batch_sizes = st.integers(1, 20)


def of_all_ranks(size: int, batch_size: int, world: int, *, epoch: int = 1, start: int = 0) -> list[list[list[int]]]:
    """The batches of each rank."""
    samplers = [TrainSampler(size, batch_size=batch_size, world_size=world, rank=rank) for rank in range(world)]
    assert {sampler.count(start) for sampler in samplers} == {len(samplers[0].batches(epoch, start))}
    return [[batch.tolist() for batch in sampler.batches(epoch, start)] for sampler in samplers]


@given(sizes, batch_sizes, worlds)
def test_every_rank_has_as_many_batches_of_the_same_lengths(size: int, batch_size: int, world: int) -> None:
    ranks = of_all_ranks(size, batch_size, world)
    assert len({tuple(len(batch) for batch in batches) for batches in ranks}) == 1
    assert ranks[0]


@given(sizes, batch_sizes, worlds)
def test_an_epoch_has_each_sample_once_but_for_the_tail(size: int, batch_size: int, world: int) -> None:
    seen = [index for batches in of_all_ranks(size, batch_size, world) for batch in batches for index in batch]
    assert set(seen) <= set(range(size))
    repeated, left_out = len(seen) - len(set(seen)), size - len(set(seen))
    assert repeated < world or size < world
    assert left_out <= world
    assert not (repeated and left_out)


@given(sizes, batch_sizes, worlds, st.data())
def test_an_epoch_goes_on_where_it_was_left(size: int, batch_size: int, world: int, data: st.DataObject) -> None:
    whole = of_all_ranks(size, batch_size, world)
    done = data.draw(st.integers(0, len(whole[0])))
    start = min(done * batch_size * world, size)
    assert of_all_ranks(size, batch_size, world, start=start) == [batches[done:] for batches in whole]


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = [
        torch.cat(TrainSampler(50, batch_size=8, seed=seed).batches(epoch)).tolist()
        for seed in (0, 1)
        for epoch in (1, 2)
    ]
    assert len({tuple(order) for order in orders}) == 4
    assert all(sorted(order) == list(range(50)) for order in orders)


@given(sizes, batch_sizes, worlds)
def test_evaluation_has_each_sample_exactly_once(size: int, batch_size: int, world: int) -> None:
    ranks = [evaluation_batches(size, batch_size=batch_size, world_size=world, rank=rank) for rank in range(world)]
    assert sorted(index for batches in ranks for batch in batches for index in batch.tolist()) == list(range(size))
    alone = [batch.tolist() for batch in evaluation_batches(size, batch_size=batch_size)]
    assert all(batch.tolist() in alone for batches in ranks for batch in batches)
