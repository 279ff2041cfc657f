"""Texts as tokens: the tokenizer that is trained here, and batches padded to their longest text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
import torch
from torch import Tensor

from trainer.data.loading import to_device
from trainer.data.texts import Texts
from trainer.task import Batch

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
"""RoBERTa's, each at its place in the vocabulary."""

CHUNK = 10_000
"""Texts that are tokenized at a time."""


@dataclass(frozen=True)
class TokenizerFiles:
    """A tokenizer as files: those with which transformers loads it, too."""

    content: str
    """Of `tokenizer.json`."""
    roles: dict[str, str]
    """The special tokens by what they are for, as `tokenizer_config.json` has them: `pad_token` and so on."""

    @property
    def vocabulary(self) -> int:
        """The number of its tokens."""
        return Tokenizer.from_str(self.content).get_vocab_size()

    @property
    def config(self) -> dict[str, Any]:
        """Of `tokenizer_config.json`. What looks like a special token is text."""
        return {"tokenizer_class": "TokenizersBackend", "split_special_tokens": True, **self.roles}


def train_tokenizer(texts: Sequence[str], *, vocabulary: int) -> TokenizerFiles:
    """A byte-level BPE tokenizer as RoBERTa's, of at most `vocabulary` tokens.

    The same texts give the same one on any machine and any number of threads.
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
    """The tokens of one split, one text after the other."""

    ids: Tensor
    """int32, on the CPU or the GPU."""
    starts: Tensor
    """Of each text, and last the end; int64, beside `ids`."""
    labels: Tensor
    lengths: Tensor
    """int64, on the CPU."""
    padding: int
    """The token that fills a batch up."""

    def __len__(self) -> int:
        return len(self.lengths)

    def batches(self, plan: Sequence[Tensor], *, device: torch.device) -> Iterator[Batch]:
        """Texts and labels of each batch of indices, on `device`; of CUDA's batches the width is a multiple of 8.

        The inputs are `input_ids` (texts, longest; int64) and `attention_mask` (bool, of the same shape).
        """
        if not plan:
            return
        # All indices go to the device at once, and not a batch's before each batch.
        indices = to_device(torch.cat(list(plan)), self.ids.device)
        multiple = 8 if device.type == "cuda" else 1
        for batch, chosen in zip(plan, indices.split([len(batch) for batch in plan]), strict=True):
            width = -(-int(self.lengths[batch].max()) // multiple) * multiple
            inputs, labels = self._padded(chosen, width), self.labels[chosen]
            yield Batch({name: to_device(tensor, device) for name, tensor in inputs.items()}, to_device(labels, device))

    def longest(self, count: int) -> Tensor:
        """The indices of the `count` longest texts."""
        return self.lengths.topk(min(count, len(self))).indices

    def _padded(self, chosen: Tensor, width: int) -> dict[str, Tensor]:
        places = self.starts[chosen, None] + torch.arange(width, device=self.ids.device)
        mask = places < self.starts[chosen + 1, None]
        ids = self.ids[places.clamp(max=len(self.ids) - 1)].long()
        return {"input_ids": ids.where(mask, self.padding), "attention_mask": mask}


def tokenize(texts: Texts, *, tokenizer: TokenizerFiles, max_length: int, padding: int, device: torch.device) -> Tokens:
    """Each text cut at `max_length` tokens, the special ones among them. What looks like a special token is text.

    The tokens lie on `device` if they take a small part of the memory that it has left.
    """
    encoder = Tokenizer.from_str(tokenizer.content)
    encoder.no_padding()
    encoder.enable_truncation(max_length)
    encoder.encode_special_tokens = True
    parts: list[Tensor] = []
    lengths: list[int] = []
    for first in range(0, len(texts.texts), CHUNK):
        encodings = encoder.encode_batch_fast(texts.texts[first : first + CHUNK])
        lengths += [len(encoding) for encoding in encodings]
        parts.append(torch.tensor([token for encoding in encodings for token in encoding.ids], dtype=torch.int32))
    ids = torch.cat(parts)
    where = device if device.type == "cuda" and ids.nbytes < torch.cuda.mem_get_info(device)[0] / 8 else ids.device
    return Tokens(
        ids=ids.to(where),
        starts=torch.tensor([0, *accumulate(lengths)]).to(where),
        labels=texts.labels.to(where),
        lengths=torch.tensor(lengths),
        padding=padding,
    )
