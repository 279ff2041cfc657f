"""The tokenizer of a text model."""

from dataclasses import dataclass
import json
from typing import Any

from tokenizers import Tokenizer

GENERAL = "PreTrainedTokenizerFast"
"""The class that reads `tokenizer.json` alone. Transformers 4 and 5 both know it by this name."""


def adds_prefix_space(content: str) -> bool:
    """Returns whether a text gets a space in front. transformers 4 believes the configuration, not `tokenizer.json`."""
    splitting = json.loads(content).get("pre_tokenizer") or {}
    return bool(splitting.get("add_prefix_space", False))


@dataclass(frozen=True)
class TokenizerFiles:
    """The files of a tokenizer. transformers can load it from them."""

    content: str
    """The content of `tokenizer.json`."""
    roles: dict[str, str]
    """The special tokens by their roles in `tokenizer_config.json`: `pad_token` and so on."""

    @property
    def vocabulary(self) -> int:
        """The number of tokens."""
        return Tokenizer.from_str(self.content).get_vocab_size()

    @property
    def config(self) -> dict[str, Any]:
        """The content of `tokenizer_config.json`. Special tokens in texts are tokenized as plain text.

        transformers 4 and 5 make the same of it.
        """
        return {
            "tokenizer_class": GENERAL,
            "add_prefix_space": adds_prefix_space(self.content),
            "model_input_names": ["input_ids", "attention_mask"],
            "split_special_tokens": True,
            **self.roles,
        }

    def encoder(self, *, max_length: int) -> Tokenizer:
        """Returns the tokenizer, which cuts a text at `max_length` tokens, special tokens included, and does not pad.

        Special tokens in texts are tokenized as plain text.
        """
        encoder = Tokenizer.from_str(self.content)
        encoder.no_padding()
        encoder.enable_truncation(max_length)
        encoder.encode_special_tokens = True
        return encoder
