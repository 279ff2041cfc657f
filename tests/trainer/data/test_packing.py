"""Packing: every document once, no row too long, as good as best fit that looks at every row."""

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st
import torch

from trainer.data.packing import Packs, alone, pack


@st.composite
def documents(draw: st.DrawFn) -> tuple[list[int], int]:
    row = draw(st.sampled_from([1, 8, 63, 1023, 1024, 1025, 3000, 1_048_576]))
    longest = draw(st.integers(1, row))
    return draw(st.lists(st.integers(1, longest), min_size=1, max_size=80)), row


def rows_of(packs: Packs) -> list[list[int]]:
    starts = packs.starts.tolist()
    return [packs.documents[a:b].tolist() for a, b in pairwise(starts)]


def naive(lengths: Sequence[int], row: int) -> list[int]:
    """Returns what is left in each row, by best fit decreasing that looks at every row."""
    left: list[int] = []
    for length in sorted(lengths, reverse=True):
        fitting = [index for index, free in enumerate(left) if free >= length]
        if not fitting:
            fitting = [len(left)]
            left.append(row)
        left[min(fitting, key=left.__getitem__)] -= length
    return sorted(left)


@given(documents())
@example(([4, 4, 4, 4, 8], 8))
@example(([1024, 1025, 1023, 1, 2047], 2048))
def test_packs_are_those_of_best_fit_decreasing(given: tuple[list[int], int]) -> None:
    lengths, row = given
    packs = pack(torch.tensor(lengths), row=row)
    rows = rows_of(packs)
    assert sorted(index for documents in rows for index in documents) == list(range(len(lengths)))
    assert len(packs) == len(rows)
    assert all(rows)
    assert sorted(row - sum(lengths[index] for index in documents) for documents in rows) == naive(lengths, row)
    again = pack(torch.tensor(lengths), row=row)
    assert torch.equal(again.documents, packs.documents)
    assert torch.equal(again.starts, packs.starts)


def test_equally_long_documents_are_taken_in_their_order() -> None:
    assert rows_of(pack(torch.tensor([3, 5, 3, 5, 3]), row=8)) == [[1, 0], [3, 2], [4]]


def test_alone_each_document_is_a_row() -> None:
    assert rows_of(alone(3)) == [[0], [1], [2]]
