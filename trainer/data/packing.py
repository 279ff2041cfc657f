"""Packs documents into rows of a fixed length."""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_WORD = 1024
"""Bits of a word: two levels of words are enough for the longest rows."""


@dataclass(frozen=True)
class Packs:
    """The rows, each with the indices of its documents in their order."""

    documents: Tensor
    """Of all rows, one after the other; int64."""
    starts: Tensor
    """Where each row starts in `documents`, and last its end; int64."""

    def __len__(self) -> int:
        return len(self.starts) - 1


def alone(count: int) -> Packs:
    """Returns a row for each document."""
    return Packs(torch.arange(count), torch.arange(count + 1))


def pack(lengths: Tensor, *, row: int) -> Packs:
    """Packs documents of these lengths, each from 1 to `row`, by best fit decreasing. The same lengths, the same packs.

    The longest document that is left goes into the row that it fills best, or into a new one: the first of equally long
    ones, into the first of equally full ones. No document is split.
    """
    order = lengths.argsort(descending=True, stable=True)
    rows = torch.tensor(_rows(lengths[order].tolist(), row), dtype=torch.int64)
    by_row = rows.argsort(stable=True)
    starts = torch.zeros(int(rows.max()) + 2 if len(rows) else 1, dtype=torch.int64)
    starts[1:] = rows.bincount().cumsum(0)
    return Packs(order[by_row], starts)


def _rows(lengths: Sequence[int], size: int) -> list[int]:
    """Returns the row of each document. They come with decreasing lengths."""
    open_rows: defaultdict[int, deque[int]] = defaultdict(deque)
    """The rows by what is left in them."""
    left = _Set(size)
    """What is left in any row."""
    rows: list[int] = []
    count = 0
    for length in lengths:
        room = left.least(length)
        if room is None:
            room, row = size, count
            count += 1
        else:
            row = open_rows[room].popleft()
            if not open_rows[room]:
                left.remove(room)
        rows.append(row)
        if room > length:
            open_rows[room - length].append(row)
            left.add(room - length)
    return rows


class _Set:
    """Numbers up to `most`, of which the least that is not below another one is found at once."""

    def __init__(self, most: int) -> None:
        self._words = [0] * (most // _WORD + 1)
        self._filled = 0
        """A bit for each word that has one."""

    def add(self, number: int) -> None:
        self._words[number // _WORD] |= 1 << number % _WORD
        self._filled |= 1 << number // _WORD

    def remove(self, number: int) -> None:
        self._words[number // _WORD] &= ~(1 << number % _WORD)
        if not self._words[number // _WORD]:
            self._filled &= ~(1 << number // _WORD)

    def least(self, number: int) -> int | None:
        """Returns the least that is `number` or more."""
        word = number // _WORD
        above = self._words[word] >> number % _WORD
        if above:
            return number + _lowest(above)
        filled = self._filled >> word + 1
        if not filled:
            return None
        word += 1 + _lowest(filled)
        return word * _WORD + _lowest(self._words[word])


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1
