"""Builds the language model of a checkpoint. What its state says is not trusted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, cast
from urllib.parse import unquote

from pydantic import BaseModel, Field, model_validator
import torch
from torch import Tensor, nn

from torchyard.contract.errors import ConfigError, DataError
from torchyard.contract.recipes.causal import HF_CAUSAL, CausalLm, CausalModelConfig, LoraConfig
from torchyard.models import causal, checkpoint, library, lora
from torchyard.models.base import Base, load_model, open_base
from torchyard.models.chat import MOST_TEMPLATE_BYTES
from torchyard.models.confined import Confined, is_plain
from torchyard.models.language import tokenizer_from
from torchyard.models.placement import DTYPES, precision
from torchyard.models.prompts import Form, Prompts
from torchyard.models.text import own_config
from torchyard.models.texts import MOST_TOKENIZER_CHARACTERS
from torchyard.run.accelerator import is_accelerator

if TYPE_CHECKING:
    from transformers import TokenizersBackend

FILE = "file://"
Short = Annotated[str, Field(max_length=4096)]
SHAPE = (
    *("vocab_size", "tie_word_embeddings", "pad_token_id", "bos_token_id", "eos_token_id"),
    *("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "max_position_embeddings"),
)
"""The keys of a configuration that say what is computed, beside `library.own_keys`."""
ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""Special tokens that a saved tokenizer may name, as arguments of transformers' tokenizers."""


class SavedTokenizer(BaseModel, frozen=True, strict=True):
    content: Annotated[str, Field(max_length=MOST_TOKENIZER_CHARACTERS)]
    roles: dict[str, Any]
    chat_template: Annotated[str, Field(max_length=MOST_TEMPLATE_BYTES)] | None = None


class _BaseFacts(BaseModel, frozen=True, strict=True):
    digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    name: Short


class _Adapter(BaseModel, frozen=True, strict=True):
    base: _BaseFacts


class LanguageMetadata(BaseModel, frozen=True, strict=True):
    """What the checkpoint of a language model says about its use."""

    form: Form
    model_config_: Annotated[dict[str, Any], Field(alias="model_config")]
    adapter: _Adapter | None = None
    tokenizer: SavedTokenizer | None = None

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Self:
        if (self.adapter is None) == (self.tokenizer is None):
            raise ValueError("it has an adapter or a tokenizer, and not both")
        return self


@dataclass(frozen=True)
class Language:
    """A language model, and what turns prompts into its tokens."""

    module: nn.Module
    prompts: Prompts
    base: Base | None
    """The base of an adapter. None: the checkpoint has all weights."""
    name: str
    """What the base was called in training."""
    adapter: LoraConfig | None

    @property
    def context(self) -> int:
        """The most tokens of a sequence."""
        return own_config(self.module).max_position_embeddings

    @property
    def facts(self) -> dict[str, Any]:
        """What a card says of it."""
        parameters = {name: value.numel() for name, value in self.module.named_parameters()}
        updates = {name: count for name, count in parameters.items() if causal.is_adapter(name)}
        described = {} if self.adapter is None else {**self.adapter.model_dump(), "parameters": sum(updates.values())}
        return {
            "model": own_config(self.module).model_type,
            "base": self.name,
            "parameters": sum(parameters.values()) - sum(updates.values()),
            **({"adapter": described} if described else {}),
            "form": self.prompts.form,
            "context": self.context,
            "chat_template": self.prompts.has_template,
        }


def opened(config: CausalLm, state: Mapping[str, Any], *, device: torch.device, base: Path | None) -> Language:
    """Returns the model of a state with its weights, on `device`. Nothing that it names is imported or downloaded.

    `base`: the folder of an adapter's base; None: the one that the job named. Raises ConfigError and DataError.
    """
    found = described(state)
    if found.adapter is not None:
        return _on_base(config, state["model"], found, device=device, folder=_folder(config.model, base, found.adapter))
    if base is not None:
        raise ConfigError("a base is for an adapter, and this checkpoint has all weights: leave base out")
    return _whole(config, state["model"], found, device=device)


def described(state: Mapping[str, Any]) -> LanguageMetadata:
    """Returns what a state says of its language model. Raises ValidationError."""
    keys = ("form", "model_config", "adapter", "tokenizer")
    return LanguageMetadata.model_validate({key: state[key] for key in keys if key in state})


def _folder(model: CausalModelConfig, base: Path | None, adapter: _Adapter) -> Path:
    if base is not None:
        return base
    named = Path(unquote(model.weights.removeprefix(FILE)))
    if model.weights.startswith(FILE) and named.is_dir():
        return named
    raise DataError(
        f"it is an adapter, and its base {adapter.base.name[:100]!r} is not on this machine: give that base's folder "
        "(base= in Python, --base on the command line)"
    )


def _on_base(
    config: CausalLm, tensors: Mapping[str, Tensor], found: LanguageMetadata, *, device: torch.device, folder: Path
) -> Language:
    assert found.adapter is not None
    base = open_base(folder, field="base", confined=True)
    wanted = found.adapter.base
    if base.digest != wanted.digest:
        raise DataError(
            f"the adapter was trained on {wanted.name[:100]!r} (digest {wanted.digest[:12]}…), and {folder} is "
            f"another base (digest {base.digest[:12]}…)"
        )
    check_adapter(base, config, tensors)
    module = load_model(base, dtype=_dtype(config, device), attention=_attention(config), device=device)
    lora.inject(module, config.model.lora)
    checkpoint.fill(module, tensors)
    prompts = Prompts(base.tokenizer, form=found.form, ends=_ends(module))
    return Language(module, prompts, base, wanted.name, config.model.lora)


def _whole(
    config: CausalLm, tensors: Mapping[str, Tensor], found: LanguageMetadata, *, device: torch.device
) -> Language:
    assert found.tokenizer is not None
    shape = shape_of(found.model_config_, tensors)
    attention = _attention(config)
    with torch.device(device):
        module = causal.rebuild(shape, attention=attention)
    checkpoint.fill(module, tensors)
    tokenizer = tokenizer_of(found.tokenizer, vocabulary=own_config(module).vocab_size)
    prompts = Prompts(tokenizer, form=found.form, ends=_ends(module))
    return Language(module, prompts, None, config.model.weights, None)


def check_adapter(base: Base, config: CausalLm, tensors: Mapping[str, Tensor]) -> None:
    """Raises DataError unless the tensors are an adapter on the base. Takes no memory for what a state says."""
    with torch.device("meta"):
        sketch = causal.causal(causal.from_config(base.config, dtype=torch.float32, attention="sdpa"))
        lora.inject(sketch, config.model.lora)
    library.check_shapes(sketch, tensors)


def shape_of(model_config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Returns the keys of a configuration that are given to transformers. Raises DataError unless the tensors fit.

    Takes no memory for what a state says.
    """
    kind = model_config.get("model_type")
    if kind not in HF_CAUSAL:
        raise DataError(f"its model_type is {str(kind)[:100]!r}, not one of {', '.join(HF_CAUSAL)}")
    layers = model_config.get("num_hidden_layers", model_config.get("n_layer"))
    if type(layers) is not int or not 0 < layers <= len(tensors):
        raise DataError(f"it has {len(tensors)} tensors, and says that it has {str(layers)[:100]} layers")
    allowed = {*SHAPE, *library.own_keys(kind)}
    shape = {"model_type": kind, **{key: value for key, value in model_config.items() if key in allowed}}
    with torch.device("meta"):
        library.check_shapes(causal.rebuild(shape), tensors)
    return shape


def tokenizer_of(found: SavedTokenizer, *, vocabulary: int) -> "TokenizersBackend":
    """Returns a tokenizer for a model that has `vocabulary` tokens. Raises DataError if it has others."""
    roles = {role: token for role in ROLES if isinstance(token := found.roles.get(role), str)}
    if not is_plain(found.content):
        Confined(found.content)  # it is known then what its reading takes
    made = tokenizer_from({**found.model_dump(), "roles": roles})
    highest = max(made.get_vocab().values(), default=0)
    if highest >= vocabulary:
        raise DataError(f"its tokens are up to {highest}; its model has {vocabulary}")
    return made


def _dtype(config: CausalLm, device: torch.device) -> torch.dtype:
    """Returns the format of a base, as training has it; in host memory, from which exports are made, the exact one."""
    computes = precision(config.training.precision, device)
    return DTYPES.get(computes, torch.float32) if is_accelerator(device) else torch.float32


def _attention(config: CausalLm) -> str:
    """`flex` is for sequences of one length."""
    return "sdpa" if config.model.attention == "flex" else config.model.attention


def _ends(module: nn.Module) -> Sequence[int]:
    """Returns the tokens that end a text by the model's configuration."""
    found: Any = own_config(module).eos_token_id
    return [each for each in cast("list[Any]", found if isinstance(found, list) else [found]) if type(each) is int]
