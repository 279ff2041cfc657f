"""Counts the steps of a backtracking match, as Python's `re` does it, and makes the texts that cost it most."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
import re
from re import _constants as ops  # pyright: ignore[reportAttributeAccessIssue] - the parser that `re` itself uses
from re import _parser as parser  # pyright: ignore[reportAttributeAccessIssue]
from typing import Any

Node = tuple[Any, Any]
_ONE = frozenset({ops.LITERAL, ops.NOT_LITERAL, ops.IN, ops.ANY})
_REPEATS = frozenset({ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT})
_MOST_FIRSTS = 12
_ORDINARY = 'a0 -./"\n\x00'
"""Characters that are in a class of most kinds, and one that is in few."""


@dataclass(frozen=True)
class Attack:
    """Texts of the same kind, of any size."""

    head: str
    pump: str
    tail: str

    def of(self, size: int) -> str:
        """Returns the text with about `size` characters between its head and its tail."""
        return self.head + self.pump * (size // len(self.pump)) + self.tail


class TooManyError(Exception):
    """The match takes more steps than it may."""


class Matcher:
    """An expression. It has no references to groups, and no flags within."""

    def __init__(self, source: str | bytes, flags: int, *, anywhere: bool) -> None:
        text = source.decode("latin-1") if isinstance(source, bytes) else source
        self._tree = parser.parse(text, flags)
        self._flags = self._tree.state.flags
        self._anywhere = anywhere
        self._characters: dict[tuple[int, str], bool] = {}
        self.count = self._most = 0

    @property
    def identity(self) -> str:
        """Tells the parsed expression, its flags and where it is looked for: what decides how many steps it takes."""
        return f"{self._tree!r} {self._flags} {self._anywhere}"

    def steps(self, text: str, *, most: int) -> int:
        """Returns how many steps it takes to look through the whole text. Raises TooManyError."""
        self.count, self._most = 0, most
        start = 0
        while start <= (len(text) if self._anywhere else 0):
            ends = self._sequence(list(self._tree), text, start)
            found = next((end for end in ends if self._anywhere or end == len(text)), start)
            start = max(found, start + 1)
        return self.count

    def attacks(self) -> Iterator[Attack]:
        """Yields texts that fail late: a beginning, many of the same, and an end that does not match.

        Yields none if nothing is repeated, so that from each place there are as many steps at most as choices.
        """
        characters = "".join(dict.fromkeys((*islice(_firsts(self._tree), _MOST_FIRSTS), *_ORDINARY)))
        heads = [
            head for order in (_ORDINARY, _ORDINARY[::-1]) for head in _heads(list(self._tree), "", self._one, order)
        ]
        for head, body in dict.fromkeys(heads):
            for pump in dict.fromkeys((body, head, head + body, body + "\n", *characters)):
                if pump:
                    yield from (Attack(head, pump, tail) for tail in ("\x00", "\n"))

    def _sequence(self, nodes: Sequence[Node], text: str, at: int) -> Iterator[int]:
        """Yields where the nodes may end, the first choice first."""
        for place, node in enumerate(nodes):
            if node[0] not in _ONE:
                for end in self._ends(node, text, at):
                    yield from self._sequence(nodes[place + 1 :], text, end)
                return
            self._step()  # no generator for what has one way to go on
            if not self._one(node, text[at : at + 1]):
                return
            at += 1
        yield at

    def _ends(self, node: Node, text: str, at: int) -> Iterator[int]:
        self._step()
        operation, value = node
        if operation is ops.BRANCH:
            for branch in value[1]:
                self._step()
                yield from self._sequence(list(branch), text, at)
        elif operation is ops.SUBPATTERN:
            yield from self._sequence(list(value[3]), text, at)
        elif operation is ops.ATOMIC_GROUP:
            yield from islice(self._sequence(list(value), text, at), 1)
        elif operation in _REPEATS:
            yield from self._repeat(operation, value, text, at)
        elif operation is ops.AT:
            if self._is_at(value, text, at):
                yield at
        elif operation in {ops.ASSERT, ops.ASSERT_NOT}:
            direction, body = value
            start = at if direction > 0 else at - body.getwidth()[0]
            found = start >= 0 and next(self._sequence(list(body), text, start), None) is not None
            if found is (operation is ops.ASSERT):
                yield at
        else:
            raise NotImplementedError(f"{operation} cannot be counted")

    def _repeat(self, operation: Any, value: Any, text: str, at: int) -> Iterator[int]:
        least, most, body = value
        nodes = list(body)
        if operation is ops.POSSESSIVE_REPEAT:
            yield from islice(self._repeat(ops.MAX_REPEAT, value, text, at), 1)
        elif operation is ops.MAX_REPEAT and len(nodes) == 1 and nodes[0][0] in _ONE:
            end, last = at, min(len(text), at + most)
            while end < last and self._one(nodes[0], text[end]):
                end += 1
            self._step(end - at)
            for place in range(end, at + least - 1, -1):
                self._step()
                yield place
        else:
            yield from self._again(nodes, least, most, text, at, lazy=operation is ops.MIN_REPEAT)

    def _again(self, nodes: list[Node], least: int, most: int, text: str, at: int, *, lazy: bool) -> Iterator[int]:
        if lazy and least <= 0:
            yield at
        if most > 0:
            for end in self._sequence(nodes, text, at):
                if end > at:
                    yield from self._again(nodes, least - 1, most - 1, text, end, lazy=lazy)
        if not lazy and least <= 0:
            yield at

    def _is_at(self, kind: Any, text: str, at: int) -> bool:
        if kind is ops.AT_BEGINNING:
            return at == 0 or (bool(self._flags & re.MULTILINE) and text[at - 1] == "\n")
        if kind is ops.AT_END:
            return text[at:] in {"", "\n"} or (bool(self._flags & re.MULTILINE) and text[at] == "\n")
        if kind is ops.AT_BEGINNING_STRING:
            return at == 0
        if kind is ops.AT_END_STRING:
            return at == len(text)
        bound = _is_word(text[at - 1 : at] if at else "") is not _is_word(text[at : at + 1])
        return bound is (kind is ops.AT_BOUNDARY)

    def _one(self, node: Node, character: str) -> bool:
        """Returns whether the node matches the character, which is empty at the end of the text."""
        key = (id(node), character)
        found = self._characters.get(key)
        if found is None:
            cases = {character.lower(), character.upper()} if self._flags & re.IGNORECASE else {character}
            found = bool(character) and any(_has(node, case, self._flags) for case in cases)
            self._characters[key] = found
        return found

    def _step(self, count: int = 1) -> None:
        self.count += count
        if self.count > self._most:
            raise TooManyError


def _has(node: Node, character: str, flags: int) -> bool:
    operation, value = node
    if operation is ops.ANY:
        return character != "\n" or bool(flags & re.DOTALL)
    if operation is ops.LITERAL:
        return character == chr(value)
    if operation is ops.NOT_LITERAL:
        return character != chr(value)
    negated = bool(value) and value[0][0] is ops.NEGATE
    return any(_in(item, character) for item in value[negated:]) is not negated


def _in(item: Node, character: str) -> bool:
    operation, value = item
    if operation is ops.RANGE:
        return value[0] <= ord(character) <= value[1]
    if operation is ops.LITERAL:
        return ord(character) == value
    word, digit, space = _is_word(character), character.isdecimal(), character.isspace()
    found = {
        ops.CATEGORY_WORD: word,
        ops.CATEGORY_NOT_WORD: not word,
        ops.CATEGORY_DIGIT: digit,
        ops.CATEGORY_NOT_DIGIT: not digit,
        ops.CATEGORY_SPACE: space,
        ops.CATEGORY_NOT_SPACE: not space,
    }
    return found[value]


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _children(node: Node) -> list[list[Node]]:
    operation, value = node
    if operation is ops.BRANCH:
        return [list(branch) for branch in value[1]]
    if operation is ops.SUBPATTERN:
        return [list(value[3])]
    if operation in _REPEATS:
        return [list(value[2])]
    return [list(value)] if operation is ops.ATOMIC_GROUP else []


def _firsts(nodes: Any) -> Iterator[str]:
    """Yields a character of each range, and then each literal."""
    yield from (chr(item[1][0]) for item in _items(nodes) if item[0] is ops.RANGE)
    yield from (chr(item[1]) for item in _items(nodes) if item[0] in {ops.LITERAL, ops.NOT_LITERAL})


def _items(nodes: Any) -> Iterator[Node]:
    """Yields all that matches characters."""
    for node in nodes:
        if node[0] is ops.IN:
            yield from node[1]
        else:
            yield node
        for child in _children(node):
            yield from _items(child)


Test = Callable[[Node, str], bool]


def _heads(nodes: Sequence[Node], before: str, test: Test, order: str) -> Iterator[tuple[str, str]]:
    """Yields for each repeat a text that leads to it, and one that it repeats."""
    for node in nodes:
        for child in _children(node):
            if node[0] in _REPEATS and node[1][1] > 1:
                yield before, _sample(child, test, order)
            yield from _heads(child, before, test, order)
        before += _sample([node], test, order)


def _sample(nodes: Sequence[Node], test: Test, order: str) -> str:
    """Returns a short text that the nodes match. A repeat is taken once at least."""
    return "".join(_sample_of(node, test, order) for node in nodes)


def _sample_of(node: Node, test: Test, order: str) -> str:
    """`order`: the characters of which the first is taken that a class has."""
    operation, value = node
    if operation in _ONE:
        return next((character for character in (*order, *_firsts([node])) if test(node, character)), "é")
    if operation in _REPEATS:
        return _sample(list(value[2]), test, order) * min(max(value[0], 1), value[1])
    return _sample(children[0], test, order) if (children := _children(node)) else ""
