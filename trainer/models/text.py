"""Encoders of texts with a head that classifies: RoBERTa by size, or what lies in a directory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from torchyard.errors import DataError
from trainer.data.tokens import TokenizerFiles

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, TokenizersBackend

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
"""Liu et al., arXiv 1907.11692, table 9; `tiny` is ours."""

POSITIONS = 512
FAMILY = ("bert", "camembert", "roberta", "xlm-roberta")
"""The `model_type` of a directory's model."""

PADDING = 1
"""RoBERTa's padding token, before which no position is counted."""


@dataclass(frozen=True)
class Pretrained:
    """What lies in a directory."""

    model: nn.Module
    new: frozenset[str]
    """Parameters that the directory has no weights for."""
    tokenizer: TokenizerFiles
    longest: int
    """Tokens of the longest text that both take."""


def build(name: str, *, vocabulary: int, classes: Sequence[str], dropout: float) -> nn.Module:
    """A RoBERTa of random weights. It takes `input_ids` and `attention_mask` in a dict, and gives (texts, classes)."""
    _quiet()
    from transformers import RobertaConfig

    config = RobertaConfig(
        vocab_size=vocabulary,
        max_position_embeddings=POSITIONS + PADDING + 1,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        pad_token_id=PADDING,
        **SIZES[name],
    )
    return _from_config(_for_task(config, classes=classes, dropout=dropout))


def rebuild(model_config: Mapping[str, Any]) -> nn.Module:
    """The model that `model_config` described, with random weights."""
    _quiet()
    from transformers import AutoConfig

    return _from_config(AutoConfig.for_model(**model_config))


def load(folder: Path, *, classes: Sequence[str], dropout: float) -> Pretrained:
    """The model and the tokenizer that transformers saved in `folder`. Nothing is downloaded, no code of it is run.

    The head stays where it tells apart the same classes, else it is new. Raises DataError.
    """
    if not folder.is_dir():
        raise DataError(f"model.weights: there is no directory {folder}")
    _quiet()
    try:
        model, new = _load_model(folder, classes=classes, dropout=dropout)
        tokenizer = _load_tokenizer(folder)
        if len(tokenizer) > model.config.vocab_size:
            raise ValueError(f"its tokenizer has {len(tokenizer)} tokens, its model {model.config.vocab_size}")
        roles = {role: token for role, token in tokenizer.special_tokens_map.items() if isinstance(token, str)}
        return Pretrained(
            model=_one_argument(model),
            new=frozenset(new),
            tokenizer=TokenizerFiles(tokenizer.backend_tokenizer.to_str(), roles),
            longest=min(_positions(model.config), tokenizer.model_max_length),
        )
    except Exception as error:  # what the library raises for broken files has no common root
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(f"model.weights: {folder} cannot be used: {reason}") from error


def config_of(model: nn.Module) -> dict[str, Any]:
    """What `rebuild` takes, and `config.json` holds."""
    return json.loads(_config(model).to_json_string())


def padding(model: nn.Module) -> int:
    """The token that fills a batch up."""
    return _config(model).pad_token_id


class _OneArgument(nn.Module):
    """Stands before a class of transformers: then the model takes one argument, and gives nothing but logits."""

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        # Of a mask with two dimensions transformers would ask, on the host, whether it hides anything.
        mask = inputs["attention_mask"][:, None, None, :]
        return super().forward(input_ids=inputs["input_ids"], attention_mask=mask).logits


def _one_argument(model: nn.Module) -> nn.Module:
    """The same model with the same names of its parameters."""
    model.__class__ = _class(type(model))
    return model


@cache
def _class(base: type[nn.Module]) -> type[nn.Module]:
    return type(base.__name__, (_OneArgument, base), {})


def _quiet() -> None:
    """Before the first import from transformers: it stays off the network, and tells nothing but errors."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def _for_task(config: "PreTrainedConfig", *, classes: Sequence[str], dropout: float) -> "PreTrainedConfig":
    config.id2label = dict(enumerate(classes))
    config.label2id = {name: index for index, name in enumerate(classes)}
    config.problem_type = "single_label_classification"
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"):
        setattr(config, name, dropout)
    return config


def _from_config(config: "PreTrainedConfig") -> nn.Module:
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_config(config, dtype=torch.float32, attn_implementation="sdpa")
    model.config.architectures = [type(model).__name__]
    return _one_argument(model)


def _load_model(folder: Path, *, classes: Sequence[str], dropout: float) -> tuple["PreTrainedModel", set[str]]:
    """The model, and the names of its new parameters. Raises ValueError for weights that it has and cannot use."""
    from transformers import AutoConfig, AutoModelForSequenceClassification

    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    if config.model_type not in FAMILY:
        raise ValueError(f"its model is a {config.model_type}, and none of {', '.join(FAMILY)}")
    knows_classes = list((config.id2label or {}).values()) == list(classes)
    model, report = AutoModelForSequenceClassification.from_pretrained(
        folder,
        config=_for_task(config, classes=classes, dropout=dropout),
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
        dtype=torch.float32,
        attn_implementation="sdpa",
        ignore_mismatched_sizes=True,
        output_loading_info=True,
    )
    missing = _missing(report)
    encoder = f"{model.base_model_prefix}."
    lost = sorted(name for name in missing if name.startswith(encoder) and ".pooler." not in name)
    if lost:
        raise ValueError(f"it has no fitting weights of {', '.join(lost[:3])}")
    return model, missing if knows_classes else missing | _renew_head(model)


def _load_tokenizer(folder: Path) -> "TokenizersBackend":
    from transformers import AutoTokenizer, TokenizersBackend

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    # Without its files, transformers makes one that knows no word.
    if not any((folder / name).exists() for name in tokenizer.vocab_files_names.values()):
        raise ValueError("it has no tokenizer")
    if not isinstance(tokenizer, TokenizersBackend):
        raise ValueError(f"its tokenizer is a {type(tokenizer).__name__}, which has no tokenizer.json")
    return tokenizer


def _missing(report: Mapping[str, Any]) -> set[str]:
    return {*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])}


def _renew_head(model: "PreTrainedModel") -> set[str]:
    """Draws the head anew, as transformers does; the names of its parameters."""
    renewed: set[str] = set()
    for path, module in model.named_modules():
        if isinstance(module, nn.Linear) and not path.startswith(f"{model.base_model_prefix}."):
            nn.init.normal_(module.weight, std=model.config.initializer_range)
            nn.init.zeros_(module.bias)
            renewed |= {f"{path}.weight", f"{path}.bias"}
    return renewed


def _positions(config: "PreTrainedConfig") -> int:
    """Tokens of the longest text; RoBERTa and its kin count positions from behind the padding token."""
    before = 0 if config.model_type == "bert" else config.pad_token_id + 1
    return config.max_position_embeddings - before


def _config(model: nn.Module) -> "PreTrainedConfig":
    return cast("PreTrainedModel", model).config
