"""What a checkpoint says of a language model, and the files with which transformers loads it."""

from collections.abc import Mapping
import json
from typing import TYPE_CHECKING, Any

from torchyard.models.library import configure_transformers

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, TokenizersBackend


def tokenizer_state(tokenizer: "TokenizersBackend") -> dict[str, Any]:
    """Returns what a checkpoint keeps of a tokenizer."""
    return {
        "content": tokenizer.backend_tokenizer.to_str(),
        "roles": dict(tokenizer.special_tokens_map),
        "chat_template": tokenizer.chat_template,
    }


def config_from(model_config: Mapping[str, Any]) -> "PreTrainedConfig":
    """Returns the configuration of a model that a checkpoint describes."""
    configure_transformers()
    from transformers import AutoConfig

    return AutoConfig.for_model(**model_config)


def tokenizer_from(saved: Mapping[str, Any]) -> "TokenizersBackend":
    """Returns the tokenizer that `tokenizer_state` has described."""
    configure_transformers()
    from tokenizers import Tokenizer
    from transformers import TokenizersBackend

    content = Tokenizer.from_str(saved["content"])
    return TokenizersBackend(tokenizer_object=content, chat_template=saved["chat_template"], **saved["roles"])


def transformers_files(
    model_config: Mapping[str, Any], saved: Mapping[str, Any], *, max_length: int
) -> dict[str, bytes]:
    """Returns the files with which transformers loads a folder, beside `model.safetensors`.

    `saved`: what `tokenizer_state` returns. `max_length`: where `truncation=True` cuts texts, in tokens.
    """
    settings = {"tokenizer_class": "TokenizersBackend", **saved["roles"], "model_max_length": max_length}
    files = {
        "config.json": json.dumps(model_config, indent=2).encode(),
        "tokenizer.json": saved["content"].encode(),
        "tokenizer_config.json": json.dumps(settings, indent=2).encode(),
    }
    template = saved["chat_template"]
    return files if template is None else {**files, "chat_template.jinja": template.encode()}
