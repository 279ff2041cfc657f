"""Encoders of texts with a classification head: RoBERTa in several sizes, and other types of transformers' models."""

from collections.abc import Mapping, Sequence
from functools import cache
import json
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from torchyard.contract.errors import ConfigError
from torchyard.contract.recipes import HF, HF_TEXTS
from torchyard.models.library import Options, config_of_type, configure_transformers
from torchyard.models.tokenizer import TokenizerFiles

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 512},
    "roberta_base": {
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
    },
    "roberta_large": {
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
    },
}
"""The sizes in table 9 of Liu et al., arXiv 1907.11692, and `tiny`, which is ours."""

FAMILY = HF_TEXTS
"""The values of `model_type` that are supported."""

POSITIONS = 512
PADDING = 1
"""RoBERTa's padding token. Positions are numbered from PADDING + 1."""

_NUMBERED_FROM_PADDING = {"camembert", "roberta", "xlm-roberta"}
_DROPOUTS = (
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout", "classifier_dropout_prob"),
    *("dropout", "attention_dropout", "seq_classif_dropout", "embedding_dropout", "mlp_dropout", "pooler_dropout"),
)
"""The names that types have for their dropouts."""


def build(
    name: str, *, vocabulary: int, classes: Sequence[str], dropout: float, options: Options | None = None
) -> nn.Module:
    """Returns an encoder with random weights. It takes a dict of `input_ids` and `attention_mask`.

    It returns logits (texts, classes). `options` are those of `hf/TYPE`. Raises ConfigError.
    """
    configure_transformers()
    if name.startswith(HF):
        config = _config_of_type(name.removeprefix(HF), vocabulary=vocabulary, options=options or {})
        try:
            return _from_config(for_task(config, classes=classes, dropout=dropout))
        except (ValueError, RuntimeError, AssertionError) as error:
            raise ConfigError(f"model.options: {name} cannot be built: {str(error).splitlines()[0]}") from error
    from transformers import RobertaConfig

    config = RobertaConfig(
        vocab_size=vocabulary,
        max_position_embeddings=POSITIONS + PADDING + 1,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        pad_token_id=PADDING,
        **SIZES[name],
    )
    return _from_config(for_task(config, classes=classes, dropout=dropout))


def rebuild(model_config: Mapping[str, Any]) -> nn.Module:
    """Returns the model that `model_config` describes, with random weights."""
    configure_transformers()
    from transformers import AutoConfig

    return _from_config(AutoConfig.for_model(**model_config))


def config_of(model: nn.Module) -> dict[str, Any]:
    """Returns the configuration that `rebuild` takes, the content of `config.json`."""
    return json.loads(own_config(model).to_json_string())


def transformers_files(config: Mapping[str, Any], tokenizer: TokenizerFiles, *, max_length: int) -> dict[str, bytes]:
    """Returns the files with which transformers loads a folder, beside `model.safetensors`.

    `config`: what `config_of` returns. `max_length`: where `truncation=True` cuts texts, in tokens.
    """
    tokenizer_config = {**tokenizer.config, "model_max_length": max_length}
    return {
        "config.json": json.dumps(config, indent=2).encode(),
        "tokenizer.json": tokenizer.content.encode(),
        "tokenizer_config.json": json.dumps(tokenizer_config, indent=2).encode(),
    }


def padding(model: nn.Module) -> int:
    """Returns the padding token."""
    return own_config(model).pad_token_id


def longest(config: "PreTrainedConfig") -> int:
    """Returns the tokens of the longest text. RoBERTa models number positions from the padding token on."""
    before = config.pad_token_id + 1 if config.model_type in _NUMBERED_FROM_PADDING else 0
    return config.max_position_embeddings - before


def attention(kind: str) -> str:
    """Returns the implementation of attention of a type. A configuration's own may name one to download."""
    return "eager" if kind == "deberta-v2" else "sdpa"


class _OneArgument(nn.Module):
    """A mixin for models of transformers: the model takes one argument and returns only logits."""

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        mask = inputs["attention_mask"]
        if getattr(own_config(self), "classifier_pooling", None) != "mean":  # which is over the mask's own texts
            # For a mask with two dimensions, transformers waits for the device to learn whether it masks anything.
            mask = mask[:, None, None, :]
        return super().forward(input_ids=inputs["input_ids"], attention_mask=mask).logits


def one_argument(model: nn.Module) -> nn.Module:
    """Makes the model take one argument. Its parameters keep their names."""
    model.__class__ = _class(type(model))
    return model


@cache
def _class(base: type[nn.Module]) -> type[nn.Module]:
    return type(base.__name__, (_OneArgument, base), {})


def for_task(config: "PreTrainedConfig", *, classes: Sequence[str], dropout: float) -> "PreTrainedConfig":
    """Sets the classes and the dropout of a configuration, and returns it."""
    config.id2label = dict(enumerate(classes))
    config.label2id = {name: index for index, name in enumerate(classes)}
    config.problem_type = "single_label_classification"
    for name in _DROPOUTS:
        if hasattr(config, name):
            setattr(config, name, dropout)
    return config


def _config_of_type(kind: str, *, vocabulary: int, options: Options) -> "PreTrainedConfig":
    positions = POSITIONS + PADDING + 1
    config = config_of_type(
        kind, options=options, vocab_size=vocabulary, max_position_embeddings=positions, pad_token_id=PADDING
    )
    for name, token in (("bos", 0), ("cls", 0), ("eos", 2), ("sep", 2)):  # those of the tokenizer that is trained
        if hasattr(config, f"{name}_token_id"):
            setattr(config, f"{name}_token_id", token)
    return config


def _from_config(config: "PreTrainedConfig") -> nn.Module:
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_config(
        config, dtype=torch.float32, attn_implementation=attention(config.model_type)
    )
    model.config.architectures = [type(model).__name__]
    return one_argument(model)


def own_config(model: nn.Module) -> "PreTrainedConfig":
    """Returns the configuration of a model."""
    return cast("PreTrainedModel", model).config
