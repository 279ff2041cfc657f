"""Loads text encoders from a directory, as transformers saves them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from torchyard.contract.errors import DataError
from torchyard.models.library import configure_transformers
from torchyard.models.text import FAMILY, attention, for_task, longest, one_argument, own_config
from torchyard.models.tokenizer import TokenizerFiles
from trainer.weights.digests import checked_snapshot

if TYPE_CHECKING:
    from transformers import PreTrainedModel, TokenizersBackend


@dataclass(frozen=True)
class Pretrained:
    """A model and a tokenizer from a directory."""

    model: nn.Module
    new: frozenset[str]
    """Parameters that the directory has no weights for."""
    tokenizer: TokenizerFiles
    longest: int
    """Tokens of the longest text that both the model and the tokenizer accept."""


def load(folder: Path, *, classes: Sequence[str], dropout: float) -> Pretrained:
    """Loads the model and the tokenizer that transformers saved in `folder`.

    Downloads nothing, and runs no code of the folder. The head is kept if it is for the same classes; otherwise it is
    initialized. Raises DataError.
    """
    if not folder.is_dir():
        raise DataError(f"model.weights: there is no directory {folder}")
    configure_transformers()
    try:
        with checked_snapshot(folder) as checked:
            model, new = _load_model(checked, classes=classes, dropout=dropout)
            tokenizer = _load_tokenizer(checked)
        _check_tokens(model, tokenizer)
        return Pretrained(
            model=one_argument(model),
            new=frozenset(new),
            tokenizer=TokenizerFiles(tokenizer.backend_tokenizer.to_str(), tokenizer.special_tokens_map),
            longest=min(longest(model.config), tokenizer.model_max_length),
        )
    except Exception as error:  # the library's errors for broken files have no common base class
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(f"model.weights: {folder} cannot be used: {reason}") from error


def picture_state(model: nn.Module, folder: Path) -> dict[str, Tensor]:
    """Returns the weights by name that transformers saved in `folder` and that fit the model, one of its own.

    The names in the file may be those of older versions. What the folder says of its model is not read. Raises
    DataError.
    """
    from transformers import AutoModelForImageClassification

    try:
        with checked_snapshot(folder) as checked:
            loaded, report = AutoModelForImageClassification.from_pretrained(
                checked,
                config=own_config(model),
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                dtype=torch.float32,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
    except Exception as error:  # the library's errors for broken files have no common base class
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(f"model.weights: {folder} cannot be used: {reason}") from error
    missing = _missing_names(report)
    return {name: tensor for name, tensor in loaded.state_dict().items() if name not in missing}


def _load_model(folder: Path, *, classes: Sequence[str], dropout: float) -> tuple["PreTrainedModel", set[str]]:
    """Returns the model and the names of its new parameters. Raises ValueError if its weights cannot be used."""
    from transformers import AutoConfig, AutoModelForSequenceClassification

    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    if config.model_type not in FAMILY:
        raise ValueError(f"its model_type is {config.model_type}, not one of {', '.join(FAMILY)}")
    knows_classes = list((config.id2label or {}).values()) == list(classes)
    model, report = AutoModelForSequenceClassification.from_pretrained(
        folder,
        config=for_task(config, classes=classes, dropout=dropout),
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
        dtype=torch.float32,
        attn_implementation=attention(config.model_type),
        ignore_mismatched_sizes=True,
        output_loading_info=True,
    )
    missing = _missing_names(report)
    encoder = f"{model.base_model_prefix}."
    lost = sorted(name for name in missing if name.startswith(encoder) and ".pooler." not in name)
    if lost:
        raise ValueError(f"it has no weights of the right shape for {', '.join(lost[:3])}")
    return model, missing if knows_classes else missing | _renew_head(model)


def _load_tokenizer(folder: Path) -> "TokenizersBackend":
    from transformers import AutoTokenizer, TokenizersBackend

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    # Without tokenizer files, transformers makes a tokenizer with an empty vocabulary.
    if not any((folder / name).exists() for name in tokenizer.vocab_files_names.values()):
        raise ValueError("it has no tokenizer")
    if not isinstance(tokenizer, TokenizersBackend):
        raise ValueError(f"its tokenizer is a {type(tokenizer).__name__}, which has no tokenizer.json")
    return tokenizer


def _check_tokens(model: "PreTrainedModel", tokenizer: "TokenizersBackend") -> None:
    """Raises ValueError if the model does not take all tokens: no checkpoint of it could be loaded."""
    size, padding = model.config.vocab_size, model.config.pad_token_id
    highest = max(tokenizer.get_vocab().values(), default=0)
    if highest >= size:
        raise ValueError(f"its tokenizer has tokens up to {highest}, its model {size}, from 0")
    if type(padding) is not int or not 0 <= padding < size:
        raise ValueError(
            f"the pad_token_id of its config.json is {padding}: name the token that pads texts, below {size}"
        )


def _missing_names(report: Mapping[str, Any]) -> set[str]:
    return {*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])}


def _renew_head(model: "PreTrainedModel") -> set[str]:
    """Initializes the head as transformers does. Returns the names of its parameters."""
    renewed: set[str] = set()
    for path, module in model.named_modules():
        if isinstance(module, nn.Linear) and not path.startswith(f"{model.base_model_prefix}."):
            nn.init.normal_(module.weight, std=model.config.initializer_range)
            nn.init.zeros_(module.bias)
            renewed |= {f"{path}.weight", f"{path}.bias"}
    return renewed
