"""Sequences: documents in rows, as a language model trains on them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchyard.contract.errors import DataError
from torchyard.contract.recipes.causal import CausalDataConfig
from torchyard.models.confined import Confined
from torchyard.run.accelerator import is_accelerator
from trainer.data.batch import Batch
from trainer.data.documents import Documents, tokenize
from trainer.data.examples import Example, Form, read_examples, source_files
from trainer.data.identity import Identity
from trainer.data.images import split_indices
from trainer.data.loading import TOKENS, to_device
from trainer.data.packing import Packs, alone, pack

if TYPE_CHECKING:
    from transformers import TokenizersBackend

MOST_PROMPT = 64
"""Tokens of a text that the model continues."""


@dataclass(frozen=True)
class Prompt:
    """What the model continues, and how the example does."""

    tokens: list[int]
    rest: list[int]
    """To the end of the document, or of the turn."""


class Sequences:
    """One split. A row is a pack of documents, or one document."""

    def __init__(self, documents: Documents, packs: Packs, *, form: Form) -> None:
        self._documents = documents
        self._packs = packs
        self._form: Form = form
        self.lengths = _sums(documents.lengths, packs)
        """Tokens of each row; int64."""
        self.counted = _sums(documents.counts, packs)
        """Tokens of each row that the loss counts: at least 1; int64."""

    def __len__(self) -> int:
        return len(self._packs)

    def batches(self, plan: Sequence[Tensor], *, device: torch.device) -> Iterator[Batch]:
        """Yields the rows of each batch of indices, on `device`. On a GPU the width is a multiple of 8.

        The inputs are `input_ids` and `position_ids` (rows, width), and `places` and `labels` (counted tokens): the
        places in the flat batch whose next token is counted, and these next tokens, which are the targets too. All
        int64. Positions restart with each document and with the padding at the right.
        """
        multiple = 8 if is_accelerator(device) else 1
        for rows in plan:
            inputs = self._padded(rows, multiple)
            TOKENS.count += int(self.lengths[rows].sum())
            there = {name: to_device(tensor, device) for name, tensor in inputs.items()}
            yield Batch(there, there["labels"])

    def longest(self, count: int) -> Tensor:
        """Returns the indices of the `count` longest rows."""
        return self.lengths.topk(min(count, len(self))).indices

    def prompts(self, count: int) -> list[Prompt]:
        """Returns what comes before the first counted token of the first documents: of a text, the first half."""
        chosen: list[int] = self._packs.documents.sort().values[:count].tolist()
        return [self._prompt(document) for document in chosen]

    def _prompt(self, document: int) -> Prompt:
        whole = slice(*self._documents.starts[document : document + 2].tolist())
        ids: list[int] = self._documents.ids[whole].tolist()
        if self._form == "text":
            middle = min(len(ids) // 2, MOST_PROMPT)
            return Prompt(ids[:middle], ids[middle:])
        counted: list[bool] = self._documents.counted[whole].tolist()
        begin = counted.index(True)
        end = counted.index(False, begin) if False in counted[begin:] else len(ids)
        return Prompt(ids[:begin], ids[begin:end])

    def _padded(self, rows: Tensor, multiple: int) -> dict[str, Tensor]:
        starts, lengths = self._packs.starts, self.lengths[rows]
        documents = self._packs.documents[_ranges(starts[rows], starts[rows + 1] - starts[rows])]
        sizes = self._documents.lengths[documents]
        tokens = _ranges(self._documents.starts[documents], sizes)
        ids = self._documents.ids[tokens].long()
        width = -(-int(lengths.max()) // multiple) * multiple
        cells = _ranges(torch.arange(len(rows)) * width, lengths)
        inputs = torch.zeros(len(rows), width, dtype=torch.int64)  # no document sees what is behind it
        inputs.view(-1)[cells] = ids
        positions = torch.arange(width) - lengths[:, None]
        positions.view(-1)[cells] = _ranges(torch.zeros_like(sizes), sizes)
        counted = self._documents.counted[tokens]
        return {
            "input_ids": inputs,
            "position_ids": positions,
            "places": cells[counted] - 1,
            "labels": ids[counted],
        }


@dataclass(frozen=True)
class SequenceData:
    """A source of examples with its two splits."""

    train: Sequences
    val: Sequences
    identity: Identity
    """Its digest is that of what all examples say, in their order."""
    split_hash: str
    """The digest of which examples train and which are held out."""
    form: Form
    notes: list[str]
    """What is to be said once about the examples: how many are cut or left out, and why."""


def load_sequences(
    path: Path,
    config: CausalDataConfig,
    *,
    tokenizer: "TokenizersBackend",
    chat_template: str | None,
    vocabulary: int,
    base: str,
    on_chunk: Callable[[], None] = lambda: None,
    confined: Confined | None = None,
) -> SequenceData:
    """Loads JSON lines, or a folder with train.jsonl and val.jsonl, as tokens in rows of `config.max_length`.

    `tokenizer` is a fast one; `vocabulary` are the tokens that the model has; `base` is what an error calls it. A
    source without its own split is split by the configuration's seed. `on_chunk` is called now and then. `confined`:
    see `documents.tokenize`. Raises DataError.
    """
    reading = _Reading(path)
    documents = tokenize(
        reading.examples(),
        tokenizer=tokenizer,
        chat_template=chat_template,
        base=base,
        max_length=config.max_length,
        too_long=config.too_long,
        on_chunk=on_chunk,
        confined=confined,
    )
    _check_ids(documents, vocabulary=vocabulary, base=base)
    held_out = torch.arange(len(documents)) >= reading.training
    if not reading.has_split:
        every = torch.zeros(len(documents))
        held_out[split_indices(every, fraction=config.val_fraction, seed=config.split_seed)[1]] = True
    return SequenceData(
        train=Sequences(documents, _packs(documents, ~held_out, config, f"{path}: training"), form=reading.form),
        val=Sequences(documents, _packs(documents, held_out, config, f"{path}: validation"), form=reading.form),
        identity=Identity(digest=reading.digest, root=path, digests=reading.digests),
        split_hash=hashlib.sha256(reading.digest.encode() + held_out.numpy().tobytes()).hexdigest(),
        form=reading.form,
        notes=_notes(documents, config),
    )


class _Reading:
    """Reads the files of a source, and hashes what they say."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._train, self._val = source_files(path)
        self._whole = hashlib.sha256()
        self.has_split = self._val is not None
        self.digests: dict[str, str] = {}
        """By the names of the files below the source."""
        self.training = 0
        """Examples of the file for training."""
        self.form: Form = "text"

    @property
    def digest(self) -> str:
        return self._whole.hexdigest()

    def examples(self) -> Iterator[Example]:
        for example in self._examples(self._train):
            self.training += 1
            self.form = example.form
            yield example
        for example in self._examples(self._val) if self._val is not None else ():
            if example.form != self.form:
                raise DataError(f"{example.where}: has other keys than the examples in {self._train}")
            yield example

    def _examples(self, file: Path) -> Iterator[Example]:
        digest = hashlib.sha256()
        for example in read_examples(file):
            values = json.dumps(example.values).encode()
            digest.update(values)
            self._whole.update(values)
            yield example
        self.digests[file.relative_to(self._path).as_posix()] = digest.hexdigest()


def _check_ids(documents: Documents, *, vocabulary: int, base: str) -> None:
    highest = int(documents.ids.max()) if len(documents.ids) else 0
    if highest >= vocabulary:
        raise DataError(
            f"the tokenizer of {base} gives the token {highest}, and its model has {vocabulary}, from 0: "
            "they do not belong together"
        )


def _packs(documents: Documents, chosen: Tensor, config: CausalDataConfig, what: str) -> Packs:
    """Returns the rows of the chosen documents. Raises DataError if none is left."""
    kept = (chosen & (documents.counts > 0)).nonzero().flatten()
    if not len(kept):
        why = f"all {int(chosen.sum())} are left out, see data.max_length and data.too_long" if chosen.any() else "none"
        raise DataError(f"{what} has no example: {why}")
    packs = pack(documents.lengths[kept], row=config.max_length) if config.packing else alone(len(kept))
    return Packs(kept[packs.documents], packs.starts)


def _notes(documents: Documents, config: CausalDataConfig) -> list[str]:
    notes: list[str] = []
    if documents.too_long:
        done = "cut" if config.too_long == "cut" else "left out"
        notes.append(
            f"{documents.too_long:,} of {len(documents):,} examples are longer than {config.max_length} tokens: {done}"
        )
    empty = int((documents.counts == 0).sum()) - (documents.too_long if config.too_long == "leave_out" else 0)
    if empty:
        notes.append(f"{empty:,} of {len(documents):,} examples have no counted token left, and are left out")
    return notes


def _sums(values: Tensor, packs: Packs) -> Tensor:
    """Returns the sum over the documents of each row."""
    before = torch.zeros(len(packs.documents) + 1, dtype=torch.int64)
    before[1:] = values[packs.documents].cumsum(0)
    return before[packs.starts].diff()


def _ranges(starts: Tensor, lengths: Tensor) -> Tensor:
    """Returns the numbers from each start on, so many as its length, one after the other."""
    before = lengths.cumsum(0) - lengths
    return (starts - before).repeat_interleave(lengths) + torch.arange(int(lengths.sum()))
