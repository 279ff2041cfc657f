"""Trains a tokenizer, tokenizes texts, and pads batches to their longest text."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from tokenizers import Encoding, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
import torch
from torch import Tensor

from torchyard.models.confined import Confined, Encoded, is_plain
from torchyard.models.tokenizer import TokenizerFiles
from torchyard.run.accelerator import free_memory, is_accelerator
from trainer.data.batch import Batch
from trainer.data.loading import TOKENS, to_device
from trainer.data.texts import Texts

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
"""RoBERTa's special tokens, in the order of the vocabulary."""

CHUNK = 10_000
"""Texts that are tokenized in one call."""


def train_tokenizer(texts: Sequence[str], *, vocabulary: int) -> TokenizerFiles:
    """Trains a byte-level BPE tokenizer like RoBERTa's, with at most `vocabulary` tokens.

    The same texts give the same tokenizer on any machine with any number of threads.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=2,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer=trainer)
    start, padding, end, unknown, mask = SPECIAL
    tokenizer.post_processor = processors.RobertaProcessing((end, SPECIAL.index(end)), (start, SPECIAL.index(start)))
    roles = {"bos_token": start, "cls_token": start, "eos_token": end, "sep_token": end, "pad_token": padding}
    return TokenizerFiles(tokenizer.to_str(), {**roles, "unk_token": unknown, "mask_token": mask})


@dataclass(frozen=True)
class Tokens:
    """The tokens of one split, with all texts concatenated."""

    ids: Tensor
    """int32, on the CPU or the GPU."""
    starts: Tensor
    """Where each text starts in `ids`, and last its end; int64, on the device of `ids`."""
    labels: Tensor
    lengths: Tensor
    """Tokens of each text; int64, on the CPU."""
    padding: int
    """The padding token."""

    def __len__(self) -> int:
        return len(self.lengths)

    def batches(self, plan: Sequence[Tensor], *, device: torch.device) -> Iterator[Batch]:
        """Yields texts and labels of each batch of indices, on `device`. On CUDA the width is a multiple of 8.

        The inputs are `input_ids` (texts, longest; int64) and `attention_mask` (bool, of the same shape).
        """
        if not plan:
            return
        # One copy of all indices: a copy before each batch would take longer.
        indices = to_device(torch.cat(list(plan)), self.ids.device)
        multiple = 8 if is_accelerator(device) else 1
        for batch, chosen in zip(plan, indices.split([len(batch) for batch in plan]), strict=True):
            lengths: list[int] = self.lengths[batch].tolist()
            TOKENS.count += sum(lengths)
            width = -(-max(lengths) // multiple) * multiple
            inputs, labels = self._padded(chosen, width), self.labels[chosen]
            yield Batch({name: to_device(tensor, device) for name, tensor in inputs.items()}, to_device(labels, device))

    def tokens(self, index: int) -> list[int]:
        """Returns the tokens of one text. Waits for the device."""
        return self.ids[int(self.starts[index]) : int(self.starts[index + 1])].tolist()

    def longest(self, count: int) -> Tensor:
        """Returns the indices of the `count` longest texts."""
        return self.lengths.topk(min(count, len(self))).indices

    def _padded(self, chosen: Tensor, width: int) -> dict[str, Tensor]:
        positions = self.starts[chosen, None] + torch.arange(width, device=self.ids.device)
        mask = positions < self.starts[chosen + 1, None]
        ids = self.ids[positions.clamp(max=len(self.ids) - 1)].long()
        return {"input_ids": ids.where(mask, self.padding), "attention_mask": mask}


def tokenize(
    texts: Texts,
    *,
    tokenizer: TokenizerFiles,
    max_length: int,
    padding: int,
    device: torch.device,
    confined: bool = False,
) -> Tokens:
    """Tokenizes each text, and cuts it at `max_length` tokens, special tokens included.

    Special tokens in texts are tokenized as plain text. The tokens are on `device` if they take a small part of its
    free memory. `confined`: one that did not come from a training has a process with limits, and may raise DataError.
    """
    encode = _encode(tokenizer, max_length=max_length, confined=confined)
    parts: list[Tensor] = []
    lengths: list[int] = []
    for first in range(0, len(texts.texts), CHUNK):
        encodings = encode(texts.texts[first : first + CHUNK])
        lengths += [len(encoding.ids) for encoding in encodings]
        parts.append(torch.tensor([token for encoding in encodings for token in encoding.ids], dtype=torch.int32))
    ids = torch.cat(parts)
    where = device if is_accelerator(device) and ids.nbytes < free_memory(device) / 8 else ids.device
    return Tokens(
        ids=ids.to(where),
        starts=torch.tensor([0, *accumulate(lengths)]).to(where),
        labels=texts.labels.to(where),
        lengths=torch.tensor(lengths),
        padding=padding,
    )


def _encode(
    tokenizer: TokenizerFiles, *, max_length: int, confined: bool
) -> Callable[[Sequence[str]], Sequence[Encoding | Encoded]]:
    if confined and not is_plain(tokenizer.content):
        child = Confined(tokenizer.content, max_length=max_length)
        return lambda texts: [*child.encode_all(texts)]
    return tokenizer.encoder(max_length=max_length).encode_batch_fast
