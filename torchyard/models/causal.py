"""Causal language models of transformers, as modules that return the loss of a batch."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cache, wraps
import inspect
import json
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from torchyard.models.chunked import Squash, cross_entropy
from torchyard.models.library import configure_transformers
from torchyard.models.text import own_config

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

CHUNK_TOKENS = 1024


def causal(model: nn.Module, *, chunk_tokens: int = CHUNK_TOKENS) -> nn.Module:
    """Makes a causal language model of transformers return the loss of a batch. Its parameters keep their names.

    `model(inputs)`, with a dict of `input_ids` and `position_ids` (rows, tokens), `places` (counted,), which index the
    tokens of all rows, and `labels` (counted,), the tokens that follow them, returns the mean cross-entropy of the
    labels. Positions restart at each document of a row, and documents do not see each other. With the arguments of
    transformers it does what it did before, so that it can `generate`. `state_dict()` has tied weights once, and those
    of an adapter alone if there is one.
    """
    model.__class__ = _class(type(model))
    cast(Any, model).chunk_tokens = chunk_tokens
    return model


def rebuild(
    model_config: Mapping[str, Any],
    *,
    dtype: torch.dtype = torch.float32,
    attention: str = "sdpa",
    chunk_tokens: int = CHUNK_TOKENS,
) -> nn.Module:
    """Returns the model that `model_config` describes, on the default device. Its weights are not initialized."""
    configure_transformers()
    from transformers import AutoConfig

    config = AutoConfig.for_model(**model_config)
    return causal(from_config(config, dtype=dtype, attention=attention), chunk_tokens=chunk_tokens)


def from_config(config: "PreTrainedConfig", *, dtype: torch.dtype, attention: str) -> nn.Module:
    """Returns transformers' model of a configuration, on the default device. Its weights are not initialized."""
    configure_transformers()
    from transformers import AutoModelForCausalLM
    from transformers.initialization import no_init_weights

    with no_init_weights():
        model = AutoModelForCausalLM.from_config(
            config, dtype=dtype, attn_implementation=_implementation(config.model_type, attention)
        )
    model.config.architectures = [type(model).__name__]
    model.tie_weights()
    return model


def _implementation(kind: str, attention: str) -> str:
    """Returns transformers' name of an implementation of attention. Soft caps of scores are not part of sdpa."""
    if attention == "sdpa" and kind == "gemma2":
        return "eager"
    return {"flex": "flex_attention"}.get(attention, attention)


def config_of(model: nn.Module) -> dict[str, Any]:
    """Returns the configuration that `rebuild` takes, the content of `config.json`."""
    config = json.loads(own_config(model).to_json_string(use_diff=False))
    return {key: value for key, value in config.items() if key != "_name_or_path"}  # a folder of this process


def tied_names(model: nn.Module) -> dict[str, str]:
    """Returns the names of weights that are the same as others, each with the name of the other."""
    return dict(cast("PreTrainedModel", model).all_tied_weights_keys)


class _Causal(nn.Module):
    """A mixin for models of transformers."""

    chunk_tokens: int

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        state = super().state_dict(*args, **kwargs)
        kept = _kept(self, state)
        for name in [name for name in state if name not in kept]:
            del state[name]
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        own = super().state_dict()
        kept = _kept(self, own)
        missing = [name for name in kept if name not in state_dict]
        unexpected = [name for name in state_dict if name not in kept]
        if strict and (missing or unexpected):
            wrong = [f"Missing key: {name}" for name in missing] + [f"Unexpected key: {name}" for name in unexpected]
            raise RuntimeError("\n\t".join([f"Error in loading state_dict for {type(self).__name__}:", *wrong]))
        tied = {name: state_dict[source] for name, source in tied_names(self).items() if source in state_dict}
        found = super().load_state_dict({**state_dict, **tied}, strict=False, assign=assign)
        if assign:
            cast("PreTrainedModel", self).tie_weights()
        return found


def _kept(model: nn.Module, names: Mapping[str, Any]) -> set[str]:
    """Returns the names in the state of a model: those of its adapter, or all but names of tied weights."""
    adapter = {name for name in names if is_adapter(name)}
    return adapter or set(names) - tied_names(model).keys()


def is_adapter(name: str) -> bool:
    """Returns whether a parameter is one of an adapter."""
    return ".lora_A." in name or ".lora_B." in name


@cache
def _class(base: type[nn.Module]) -> type[nn.Module]:
    forward: Callable[..., Any] = base.forward

    @wraps(forward)
    def loss_or_outputs(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], dict):
            return _loss(self, cast("dict[str, Tensor]", args[0]))
        return forward(self, *args, **kwargs)

    cast(Any, loss_or_outputs).__signature__ = inspect.signature(forward)
    return type(base.__name__, (_Causal, base), {"forward": loss_or_outputs, "__module__": base.__module__})


def _loss(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    ids = inputs["input_ids"]
    with nullcontext() if ids.device.type == "cpu" else _without_waiting():
        outputs = model.base_model(
            input_ids=ids, position_ids=inputs["position_ids"], use_cache=False, return_dict=True
        )
    hidden = outputs.last_hidden_state.flatten(0, 1).index_select(0, inputs["places"])
    head = model.get_output_embeddings()
    return cross_entropy(
        hidden, head.weight, head.bias, inputs["labels"], chunk_tokens=model.chunk_tokens, squash=squash(model.config)
    )


def squash(config: "PreTrainedConfig") -> Squash:
    """Returns what a type does with the logits of its head."""
    scaling = getattr(config, "logits_scaling", None)
    return Squash(
        scale=1 / scaling if scaling else 1.0,
        softcap=getattr(config, "final_logit_softcapping", None),
    )


@contextmanager
def _without_waiting() -> Generator[None]:
    """Makes transformers build the mask of a row's documents without asking the device whether there is only one."""
    from transformers import masking_utils

    own = masking_utils.find_packed_sequence_indices
    masking_utils.find_packed_sequence_indices = documents
    try:
        yield
    finally:
        masking_utils.find_packed_sequence_indices = own


def documents(position_ids: Tensor) -> Tensor:
    """Returns the number of the document of each token in a row."""
    return (torch.diff(position_ids, prepend=position_ids[:, :1] - 1, dim=-1) != 1).cumsum(-1)
