"""The tokenizer of a text model."""

from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer


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
        """The content of `tokenizer_config.json`. Special tokens in texts are tokenized as plain text."""
        return {"tokenizer_class": "TokenizersBackend", "split_special_tokens": True, **self.roles}

    def encoder(self, *, max_length: int) -> Tokenizer:
        """Returns the tokenizer, which cuts a text at `max_length` tokens, special tokens included, and does not pad.

        Special tokens in texts are tokenized as plain text.
        """
        encoder = Tokenizer.from_str(self.content)
        encoder.no_padding()
        encoder.enable_truncation(max_length)
        encoder.encode_special_tokens = True
        return encoder
