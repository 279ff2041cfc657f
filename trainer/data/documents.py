"""Documents: examples as tokens, and which of the tokens the loss counts."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, cast

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer
import torch
from torch import Tensor

from torchyard.contract.errors import DataError
from torchyard.models.chat import Message, Spans, render
from torchyard.models.checkpoint import raise_unless_failed, reason
from torchyard.models.confined import Confined, Encoded
from trainer.data.examples import Example

if TYPE_CHECKING:
    from transformers import TokenizersBackend

CHUNK = 1000
"""Examples that are tokenized at once, at most."""
CHUNK_CHARACTERS = 2_000_000
"""A chunk ends with the example that exceeds so many characters: an encoded token takes about 100 bytes."""
_Ids = NDArray[np.int32]
_Marks = NDArray[np.bool_]
_END = 1 << 62
"""A character behind all texts."""


@dataclass(frozen=True)
class Documents:
    """The tokens of all examples, concatenated. An example that is left out has none."""

    ids: Tensor
    """int32"""
    counted: Tensor
    """Whether the loss counts a token; bool. It never counts the first one of a document."""
    starts: Tensor
    """Where each document starts, and last its end; int64."""
    too_long: int
    """How many had more tokens than a row has."""

    def __len__(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def lengths(self) -> Tensor:
        """Tokens of each document; int64."""
        return self.starts.diff()

    @cached_property
    def counts(self) -> Tensor:
        """Counted tokens of each document; int64. 0: it is left out."""
        before = torch.zeros(len(self.ids) + 1, dtype=torch.int64)
        torch.cumsum(self.counted, 0, out=before[1:])
        return before[self.starts].diff()


def tokenize(
    examples: Iterable[Example],
    *,
    tokenizer: "TokenizersBackend",
    chat_template: str | None,
    base: str,
    max_length: int,
    too_long: Literal["cut", "leave_out"],
    on_chunk: Callable[[], None] = lambda: None,
    confined: Confined | None = None,
) -> Documents:
    """Tokenizes each example as one text, and calls `on_chunk` after some. Raises DataError.

    A text gets the special tokens that the tokenizer puts around it, and EOS at the end if it is not there. A
    conversation gets those of the chat template, and EOS if none of the assistant's turns has one. Special tokens that
    are written in an example are tokenized as such, as transformers and TRL do by default. A token is counted if any of
    its characters is one of the completion or of a turn: `Answer: ` and `yes` have the token ` yes`, which is counted.
    `confined`: the tokenizer in a process of its own, if it is a stranger's.
    """
    encoder = _Encoder(tokenizer, confined)
    ids: list[Tensor] = []
    counted: list[Tensor] = []
    lengths: list[int] = []
    longer = 0
    for chunk in _chunks(_texts(examples, tokenizer=tokenizer, chat_template=chat_template, base=base)):
        encoded = list(encoder.encoded(chunk))
        longer += sum(len(tokens) > max_length for tokens, _ in encoded)
        kept = [_kept(tokens, marks, max_length=max_length, too_long=too_long) for tokens, marks in encoded]
        ids.append(torch.from_numpy(np.concatenate([tokens for tokens, _ in kept])))
        counted.append(torch.from_numpy(np.concatenate([marks for _, marks in kept])))
        lengths += [len(tokens) for tokens, _ in kept]
        on_chunk()
    starts = torch.zeros(len(lengths) + 1, dtype=torch.int64)
    starts[1:] = torch.tensor(lengths, dtype=torch.int64).cumsum(0)
    return Documents(torch.cat(ids), torch.cat(counted), starts, longer)


def _kept(
    tokens: _Ids, marks: _Marks, *, max_length: int, too_long: Literal["cut", "leave_out"]
) -> tuple[_Ids, _Marks]:
    """Returns what is kept of a document: nothing, if no token would be counted."""
    most = 0 if len(tokens) > max_length and too_long == "leave_out" else max_length
    marks[:1] = False
    most = most if marks[:most].any() else 0
    return tokens[:most], marks[:most]


@dataclass(frozen=True, slots=True)
class _Text:
    where: str
    text: str
    spans: Spans | None
    """What is counted. None: all of it."""
    is_chat: bool = False


def _texts(
    examples: Iterable[Example], *, tokenizer: "TokenizersBackend", chat_template: str | None, base: str
) -> Iterator[_Text]:
    waiting = iter(examples)
    for example in waiting:
        if example.form == "messages":
            yield from _chats(_before(example, waiting), tokenizer=tokenizer, template=chat_template, base=base)
            return
        text = example.text if example.text.strip() else ""  # it has no tokens
        yield _Text(example.where, text, None if example.form == "text" else [(example.begins, _END)])


def _chats(
    examples: Iterable[Example], *, tokenizer: "TokenizersBackend", template: str | None, base: str
) -> Iterator[_Text]:
    if template is None:
        raise DataError(f"{base} has no chat template, which messages need: use prompt and completion, or another base")
    special = {name: str(token) for name, token in tokenizer.special_tokens_map.items() if isinstance(token, str)}
    waiting: list[str] = []
    unread: list[DataError] = []

    def conversations() -> Iterator[Sequence[Message]]:
        try:
            for example in examples:
                waiting.append(example.where)
                yield example.messages
        except DataError as error:  # it names its own line, and comes behind those before it
            unread.append(error)

    done = 0
    try:
        for done, rendered in enumerate(render(template, conversations(), special_tokens=special), start=1):
            yield _Text(waiting[done - 1], rendered.text, rendered.turns, is_chat=True)
    except DataError as error:
        if done >= len(waiting):
            raise
        raise DataError(f"{waiting[done]}: {error.message}") from error
    for error in unread:
        raise error


def _before(first: Example, others: Iterator[Example]) -> Iterator[Example]:
    yield first
    yield from others


def _chunks(texts: Iterable[_Text]) -> Iterator[list[_Text]]:
    chunk: list[_Text] = []
    characters = 0
    for text in texts:
        chunk.append(text)
        characters += len(text.text)
        if len(chunk) == CHUNK or characters > CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


class _Encoder:
    def __init__(self, tokenizer: "TokenizersBackend", confined: Confined | None) -> None:
        self._confined = confined
        self._backend = cast(Tokenizer, tokenizer.backend_tokenizer)
        self._backend.no_padding()
        self._backend.no_truncation()
        self._end = cast("int | None", tokenizer.eos_token_id)
        self._special = np.array(sorted(tokenizer.all_special_ids), dtype=np.int32)

    def encoded(self, chunk: Sequence[_Text]) -> Iterator[tuple[_Ids, _Marks]]:
        """Yields the tokens of each text, and which of them are counted."""
        is_chat, whole = chunk[0].is_chat, chunk[0].spans is None
        try:
            encodings = self._encodings([text.text for text in chunk], special=not is_chat, offsets=not whole)
        except BaseException as error:
            raise_unless_failed(error)
            raise DataError(f"the tokenizer cannot read a text from {chunk[0].where} on: {reason(error)}") from error
        for text, encoding in zip(chunk, encodings, strict=True):
            ids = np.array(encoding.ids, dtype=np.int32)
            counted = np.ones(len(ids), dtype=np.bool_) if text.spans is None else _counted(encoding, text.spans)
            if not text.text or self._ends(ids, counted, is_chat=is_chat):
                yield ids, counted
            else:
                yield np.append(ids, np.int32(self._end or 0)), np.append(counted, np.bool_(True))

    def _encodings(
        self, texts: Sequence[str], *, special: bool, offsets: bool
    ) -> Sequence[Encoding] | Sequence[Encoded]:
        if self._confined is not None:
            return [*self._confined.encode_all(texts, special=special, offsets=offsets)]
        encode = self._backend.encode_batch if offsets else self._backend.encode_batch_fast
        return encode(texts, add_special_tokens=special)

    def _ends(self, ids: _Ids, counted: _Marks, *, is_chat: bool) -> bool:
        if self._end is None:
            return True
        if is_chat:
            return bool(np.isin(ids[counted], self._special).any())
        return len(ids) > 0 and int(ids[-1]) == self._end


def _counted(encoding: Encoding | Encoded, spans: Spans) -> _Marks:
    """Returns which tokens have a character in one of the spans."""
    offsets = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
    # A special token that the tokenizer adds has the offsets (0, 0). Count one at the end as behind the text.
    behind = (offsets[:, 1] == 0) & (np.maximum.accumulate(offsets[:, 1]) > 0)
    starts, ends = np.where(behind[:, None], _END - 1, offsets).T
    counted = np.zeros(len(starts), dtype=np.bool_)
    for begin, end in spans:
        counted[np.searchsorted(ends, begin, side="right") : np.searchsorted(starts, end)] = True
    return counted
