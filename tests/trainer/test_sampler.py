from itertools import combinations, islice

from hypothesis import given
from hypothesis import strategies as st
import pytest
import torch
from torch import Tensor

from tests.trainer.regression import Regression
from trainer.sampler import (
    MicroBatch,
    StepSamples,
    TrainSampler,
    evaluation_batches,
    load_steps,
    micro_batch_limits,
)

sizes = st.integers(1, 200)
worlds = st.integers(1, 7)
global_batches = st.integers(1, 60)
batch_sizes = st.integers(1, 20)
text_lengths = st.lists(st.integers(1, 40), min_size=1, max_size=200).map(torch.tensor)


def of_all_ranks(
    size: int,
    global_batch: int,
    world: int,
    *,
    batch_size: int = 8,
    epoch: int = 1,
    start: int = 0,
    lengths: Tensor | None = None,
    batch_norm: bool = False,
) -> list[list[StepSamples]]:
    """Returns the steps of each rank."""
    samplers = [
        TrainSampler(
            size,
            global_batch=global_batch,
            batch_size=batch_size,
            world_size=world,
            rank=rank,
            lengths=lengths,
            batch_norm=batch_norm,
        )
        for rank in range(world)
    ]
    assert {sampler.count(start) for sampler in samplers} == {len(samplers[0].steps(epoch, start))}
    return [sampler.steps(epoch, start) for sampler in samplers]


def counted(ranks: list[list[StepSamples]]) -> list[list[int]]:
    """Returns the samples of each step, in the order of ranks."""
    return [
        [
            index
            for step in steps
            for micro_batch in step.micro_batches
            if micro_batch.counts
            for index in micro_batch.indices.tolist()
        ]
        for steps in zip(*ranks, strict=True)
    ]


@given(sizes, global_batches, worlds, batch_sizes)
def test_every_sample_counts_once_an_epoch(size: int, global_batch: int, world: int, batch_size: int) -> None:
    ranks = of_all_ranks(size, global_batch, world, batch_size=batch_size)
    steps = counted(ranks)
    assert sorted(index for step in steps for index in step) == list(range(size))
    assert [len(step) for step in steps] == [step.samples for step in ranks[0]]
    assert all(len(step) == global_batch for step in steps[:-1])
    assert len(steps) == -(-size // global_batch)


@given(sizes, global_batches, worlds, batch_sizes, st.booleans())
def test_all_ranks_have_equally_many_micro_batches_and_none_is_empty(
    size: int, global_batch: int, world: int, batch_size: int, batch_norm: bool
) -> None:
    ranks = of_all_ranks(size, global_batch, world, batch_size=batch_size, batch_norm=batch_norm)
    for steps in zip(*ranks, strict=True):
        assert len({len(step.micro_batches) for step in steps}) == 1
        assert all(len(micro_batch.indices) for step in steps for micro_batch in step.micro_batches)
        for place in zip(*(step.micro_batches for step in steps), strict=True):
            assert any(micro_batch.counts for micro_batch in place)


@given(sizes, global_batches, worlds, batch_sizes, st.booleans())
def test_no_micro_batch_has_more_samples_than_memory_was_measured_for(
    size: int, global_batch: int, world: int, batch_size: int, batch_norm: bool
) -> None:
    ranks = of_all_ranks(size, global_batch, world, batch_size=batch_size, batch_norm=batch_norm)
    _, largest = micro_batch_limits(batch_size, batch_norm=batch_norm)
    assert largest == batch_size + (batch_norm and batch_size > 1)
    assert all(
        len(micro_batch.indices) <= largest for steps in ranks for step in steps for micro_batch in step.micro_batches
    )


@given(sizes, global_batches, worlds, batch_sizes, st.booleans())
def test_the_windows_are_the_same_on_any_number_of_ranks(
    size: int, global_batch: int, world: int, batch_size: int, batch_norm: bool
) -> None:
    together = counted(of_all_ranks(size, global_batch, world, batch_size=batch_size, batch_norm=batch_norm))
    alone = counted(of_all_ranks(size, global_batch, 1, batch_size=global_batch, batch_norm=batch_norm))
    assert [sorted(step) for step in together] == [sorted(step) for step in alone]


@pytest.mark.parametrize("world", [1, 2, 3, 6])
def test_seventeen_samples_with_a_global_batch_of_six_are_three_steps(world: int) -> None:
    ranks = of_all_ranks(17, 6, world, batch_size=6 // world)
    assert [step.samples for step in ranks[0]] == [6, 6, 5]


def test_a_rank_without_a_sample_stands_in_while_no_other_has_two_in_a_micro_batch() -> None:
    ranks = of_all_ranks(4 + 3, 4, 4, batch_size=1)
    assert [[len(batch.indices) for batch in steps[1].micro_batches] for steps in ranks] == [[1]] * 4
    assert [[batch.counts for batch in steps[1].micro_batches] for steps in ranks] == [[True]] * 3 + [[False]]


@given(st.integers(1, 6), st.integers(1, 20), worlds, st.integers(0, 300))
def test_full_windows_have_the_configured_micro_batches(
    accumulate: int, batch_size: int, world: int, more: int
) -> None:
    global_batch = accumulate * batch_size * world
    for steps in of_all_ranks(global_batch + more, global_batch, world, batch_size=batch_size):
        if steps[0].samples == global_batch:
            assert [len(micro_batch.indices) for micro_batch in steps[0].micro_batches] == [batch_size] * accumulate


@given(st.integers(2, 200), st.integers(2, 60), worlds, st.integers(2, 20))
def test_with_batch_norm_no_sample_that_counts_is_alone_in_its_micro_batch(
    size: int, global_batch: int, world: int, batch_size: int
) -> None:
    ranks = of_all_ranks(size, global_batch, world, batch_size=batch_size, batch_norm=True)
    counting = [batch for steps in ranks for step in steps for batch in step.micro_batches if batch.counts]
    assert all(len(batch.indices) > 1 for batch in counting)
    assert sum(len(batch.indices) for batch in counting) == size


@given(sizes, global_batches, worlds, st.data())
def test_an_epoch_resumes_where_it_stopped(size: int, global_batch: int, world: int, data: st.DataObject) -> None:
    whole = of_all_ranks(size, global_batch, world)
    done = data.draw(st.integers(0, len(whole[0])))
    start = sum(step.samples for step in whole[0][:done])
    assert counted(of_all_ranks(size, global_batch, world, start=start)) == counted(whole)[done:]


@given(sizes, global_batches, worlds, worlds, st.data())
def test_an_epoch_resumes_on_another_number_of_ranks(
    size: int, global_batch: int, world: int, other: int, data: st.DataObject
) -> None:
    before = of_all_ranks(size, global_batch, world)
    done = data.draw(st.integers(0, len(before[0])))
    start = sum(step.samples for step in before[0][:done])
    seen = [*counted(before)[:done], *counted(of_all_ranks(size, global_batch, other, start=start))]
    assert sorted(index for step in seen for index in step) == list(range(size))


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=40), global_batches, worlds, batch_sizes)
def test_the_mean_of_the_ranks_weighted_sums_is_the_mean_over_the_samples(
    losses: list[float], global_batch: int, world: int, batch_size: int
) -> None:
    values = torch.tensor(losses, dtype=torch.float64)
    ranks = of_all_ranks(len(losses), global_batch, world, batch_size=batch_size)
    for steps, samples in zip(zip(*ranks, strict=True), counted(ranks), strict=True):
        sums = [
            sum(
                weight * values[micro_batch.indices].mean()
                for micro_batch, weight in zip(step.micro_batches, step.weights(world), strict=True)
            )
            for step in steps
        ]
        assert sum(sums) / world == pytest.approx(values[samples].mean().item(), abs=1e-9)


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_three_losses_have_their_true_mean_on_any_number_of_ranks(world: int) -> None:
    losses = torch.tensor([0.3, 0.2, 0.8], dtype=torch.float64)
    total = 0.0
    for steps in of_all_ranks(3, 3, world, batch_size=2):
        (step,) = steps
        for micro_batch, weight in zip(step.micro_batches, step.weights(world), strict=True):
            total += weight * losses[micro_batch.indices].mean().item()
    assert total / world == pytest.approx(0.43333333333, abs=1e-9)


def test_epochs_and_seeds_have_different_orders() -> None:
    orders = [
        [
            index
            for step in TrainSampler(50, global_batch=8, batch_size=8, seed=seed).steps(epoch)
            for index in step.micro_batches[0].indices.tolist()
        ]
        for seed in (0, 1)
        for epoch in (1, 2)
    ]
    assert len({tuple(order) for order in orders}) == 4


@given(sizes, batch_sizes, worlds)
def test_evaluation_counts_each_sample_once_in_the_same_batches(size: int, batch_size: int, world: int) -> None:
    ranks = [evaluation_batches(size, batch_size=batch_size, world_size=world, rank=rank) for rank in range(world)]
    assert len({len(micro_batches) for micro_batches in ranks}) == 1
    assert all(len(micro_batch.indices) for micro_batches in ranks for micro_batch in micro_batches)

    def batches(micro_batches: list[MicroBatch]) -> list[list[int]]:
        return [micro_batch.indices.tolist() for micro_batch in micro_batches if micro_batch.counts]

    assert sorted(index for micro_batches in ranks for batch in batches(micro_batches) for index in batch) == list(
        range(size)
    )
    alone = batches(evaluation_batches(size, batch_size=batch_size))
    assert all(batch in alone for micro_batches in ranks for batch in batches(micro_batches))


def test_windows_of_like_lengths_are_the_same_on_any_number_of_ranks() -> None:
    lengths = long_tailed(1000)
    alone = [sorted(step) for step in counted(of_all_ranks(1000, 48, 1, lengths=lengths))]
    for world in (2, 3):
        assert [sorted(step) for step in counted(of_all_ranks(1000, 48, world, lengths=lengths))] == alone


@given(text_lengths, global_batches, worlds, worlds, st.data())
def test_an_epoch_of_like_lengths_resumes_on_any_number_of_ranks(
    lengths: Tensor, global_batch: int, world: int, other: int, data: st.DataObject
) -> None:
    size = len(lengths)
    before = of_all_ranks(size, global_batch, world, lengths=lengths)
    done = data.draw(st.integers(0, len(before[0])))
    start = sum(step.samples for step in before[0][:done])
    seen = [
        *counted(before)[:done],
        *counted(of_all_ranks(size, global_batch, other, start=start, lengths=lengths)),
    ]
    assert sorted(index for step in seen for index in step) == list(range(size))
    assert counted(of_all_ranks(size, global_batch, world, start=start, lengths=lengths)) == counted(before)[done:]


def test_windows_of_like_lengths_have_the_sizes_of_random_ones() -> None:
    for size in (5, 48, 49, 96, 1000):
        sizes = [
            [(step.samples, len(step.micro_batches)) for step in of_all_ranks(size, 48, 2, lengths=lengths)[0]]
            for lengths in (None, long_tailed(size))
        ]
        assert sizes[0] == sizes[1]


def test_ranks_get_equal_work_of_texts_of_different_lengths() -> None:
    lengths = long_tailed(4000)
    ranks = of_all_ranks(4000, 96, 3, batch_size=32, lengths=lengths)
    work = torch.tensor([[padded(step, lengths) for step in steps] for steps in ranks]).double()
    assert (work.amax(0).sum() / work.mean(0).sum()).item() < 1.05


def test_windows_of_like_lengths_come_in_random_order_and_meet_others_in_each_epoch() -> None:
    lengths = long_tailed(3200)
    epochs = [counted(of_all_ranks(3200, 32, 1, epoch=epoch, lengths=lengths)) for epoch in (1, 2)]
    means = [torch.stack([lengths[step].double().mean() for step in steps]) for steps in epochs]
    for mean in (*means, means[0] - means[1]):
        following = torch.corrcoef(torch.stack([mean[:-1], mean[1:]]))[0, 1].item()
        assert abs(following) < 0.3
    together = [{frozenset(step) for step in steps} for steps in epochs]
    assert not together[0] & together[1]
    met = [{pair for step in steps for pair in combinations(sorted(step), 2)} for steps in epochs]
    assert len(met[0] & met[1]) / len(met[0]) < 0.5


@pytest.mark.parametrize(("world", "global_batch"), [(1, 32), (2, 64), (3, 96)])
def test_little_of_a_batch_is_padding(world: int, global_batch: int) -> None:
    lengths = long_tailed(9600)
    shares = [
        sum(padded(step, lengths) for steps in ranks for step in steps) / lengths.sum().item()
        for ranks in (
            of_all_ranks(9600, global_batch, world, batch_size=32, lengths=wanted) for wanted in (None, lengths)
        )
    ]
    assert shares[0] > 1.9
    assert shares[1] <= 1.10


def test_an_evaluation_of_like_lengths_has_the_same_batches_on_any_number_of_ranks() -> None:
    lengths = long_tailed(500)
    alone = [batch.indices.tolist() for batch in evaluation_batches(500, batch_size=32, lengths=lengths)]
    assert sorted(index for batch in alone for index in batch) == list(range(500))
    widths = [max(lengths[batch].tolist()) for batch in alone]
    assert widths == sorted(widths, reverse=True)
    for world in (2, 3):
        ranks = [
            evaluation_batches(500, batch_size=32, world_size=world, rank=rank, lengths=lengths)
            for rank in range(world)
        ]
        together = [batch.indices.tolist() for batches in zip(*ranks, strict=True) for batch in batches if batch.counts]
        assert together == alone


def long_tailed(size: int) -> Tensor:
    """Returns lengths of which most are short and a few are many times longer, cut at 128."""
    numbers = torch.randn(size, generator=torch.Generator().manual_seed(0))
    return (numbers + 3).exp().long().clamp(3, 128)


def padded(step: StepSamples, lengths: Tensor) -> int:
    """Returns the tokens of a rank's micro-batches with their padding."""
    return sum(len(batch.indices) * int(lengths[batch.indices].max()) for batch in step.micro_batches if batch.counts)


@given(text_lengths, global_batches, worlds, batch_sizes)
def test_the_weights_of_all_ranks_are_the_share_of_each_sample_in_what_is_counted(
    counts: Tensor, global_batch: int, world: int, batch_size: int
) -> None:
    samplers = [
        TrainSampler(
            len(counts),
            global_batch=global_batch,
            batch_size=batch_size,
            world_size=world,
            rank=rank,
            counts=counts,
        )
        for rank in range(world)
    ]
    for steps in zip(*(sampler.steps(1) for sampler in samplers), strict=True):
        assert sum(batch.total for step in steps for batch in step.micro_batches) == steps[0].total
        for step in steps:
            for batch, weight in zip(step.micro_batches, step.weights(world), strict=True):
                assert batch.total == (int(counts[batch.indices].sum()) if batch.counts else 0)
                assert weight == batch.total * world / steps[0].total


@pytest.mark.parametrize("taken", [0, 1, 4])
def test_each_step_has_its_own_batches_however_many_the_step_before_has_taken(taken: int) -> None:
    task = Regression()
    plan = TrainSampler(task.samples, global_batch=8, batch_size=2).steps(1)
    seen = 0
    for step, planned in zip(load_steps(task, plan, epoch=1), plan, strict=True):
        parts = zip(step.weighted(1), planned.micro_batches, strict=False)
        for (batch, weight, last), micro_batch in islice(parts, taken):
            assert torch.equal(batch.inputs, task.inputs[micro_batch.indices])
            assert weight == len(micro_batch.indices) / planned.samples
            assert last == (micro_batch is planned.micro_batches[-1])
            seen += 1
    assert seen == sum(min(taken, len(planned.micro_batches)) for planned in plan)
