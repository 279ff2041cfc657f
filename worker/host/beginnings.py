"""Finds in a text what begins as one of very many others do, in time that hardly grows with their number."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

_MOST_TRIES = 100
"""Of indexes where one of the texts may begin and be cut off. Beyond them, one is said to begin there."""


@dataclass
class _Group:
    """The texts that have the same first characters, in order."""

    texts: list[str]
    longest: int = 0
    inner: list[int] = field(default_factory=list[int])
    """Of each, the index of the longest other one with which it begins; -1 without one."""

    def __post_init__(self) -> None:
        self.longest = max(map(len, self.texts))
        above: list[int] = []
        for index, text in enumerate(self.texts):
            while above and not text.startswith(self.texts[above[-1]]):
                above.pop()
            self.inner.append(above[-1] if above else -1)
            above.append(index)


class Beginnings:
    """Texts by their first `least` characters, which each of them has."""

    def __init__(self, texts: Iterable[str], *, least: int) -> None:
        self._least = least
        by_start: dict[str, list[str]] = {}
        for text in sorted(set(texts)):
            by_start.setdefault(text[:least], []).append(text)
        self._groups = {start: _Group(same) for start, same in by_start.items()}

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yields where each begins that is in the text, and where the longest of those that begin there ends."""
        for start in range(len(text) - self._least + 1) if self._groups else ():
            group = self._groups.get(text[start : start + self._least])
            if group is not None and (size := _longest(group, text[start : start + group.longest])):
                yield start, start + size

    def cut_off(self, text: str) -> int | None:
        """Returns the first index from which the text goes on to its end as one of them begins, for `least` characters.

        None without any.
        """
        starts = {text[start : start + self._least] for start in range(len(text) - self._least + 1)}
        cuts = (_cut_off(self._groups[start], text, start) for start in starts & self._groups.keys())
        return min((index for index in cuts if index is not None), default=None)


def _longest(group: _Group, text: str) -> int:
    """Returns the size of the longest text of the group with which `text` begins, 0 without one."""
    # Whatever is between a beginning of the text and the text in this order begins so, too.
    index = bisect_right(group.texts, text) - 1
    while index >= 0 and not text.startswith(group.texts[index]):
        index = group.inner[index]
    return len(group.texts[index]) if index >= 0 else 0


def _cut_off(group: _Group, text: str, start: str) -> int | None:
    index = max(0, len(text) - group.longest + 1)
    for _ in range(_MOST_TRIES):
        index = text.find(start, index)
        if index < 0:
            return None
        rest = text[index:]
        at = bisect_left(group.texts, rest)
        if at < len(group.texts) and group.texts[at].startswith(rest):
            return index
        index += 1
    return index
