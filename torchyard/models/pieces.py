"""Turns tokens into text as they come: a piece never ends within a character."""

from collections.abc import Callable, Sequence

CONTEXT = 8
"""Tokens of the prompt before the text, as some tokenizers write a token otherwise at the beginning."""
MOST_WAITING = 16
"""Tokens that may wait for the rest of a character. More are bytes that are no characters."""

_UNFINISHED = "\N{REPLACEMENT CHARACTER}"


class Pieces:
    """The text that continues a prompt."""

    def __init__(self, decode: Callable[[list[int]], str], prompt: Sequence[int]) -> None:
        self._decode = decode
        self._before = [*prompt[-CONTEXT:]]
        """Tokens whose text is known, and after which `_waiting` is read."""
        self._waiting: list[int] = []

    def push(self, token: int) -> str:
        """Returns what a token adds, together with those that wait. Empty while a character is unfinished."""
        self._waiting.append(token)
        text = self._text()
        if not text or (text.endswith(_UNFINISHED) and len(self._waiting) < MOST_WAITING):
            return ""
        self._before, self._waiting = self._waiting, []
        return text

    def end(self) -> str:
        """Returns what is left."""
        return self._text()

    def _text(self) -> str:
        known = self._decode(self._before)
        return self._decode([*self._before, *self._waiting])[len(known) :]
