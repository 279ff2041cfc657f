"""The language model that a run starts with: a base with an adapter or without one, or that of a checkpoint."""

from collections.abc import Mapping
from dataclasses import dataclass
import json
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pydantic import ValidationError
import torch
from torch import nn

from torchyard.contract.bundles.names import digest_in
from torchyard.contract.errors import ConfigError, DataError
from torchyard.contract.recipes import CausalLm
from torchyard.models import causal, lora, opening
from torchyard.models.base import Base, load_model, open_base, slices
from torchyard.models.checkpoint import reason
from torchyard.models.confined import Confined, is_plain
from torchyard.models.language import config_from, tokenizer_state, transformers_files
from torchyard.models.placement import DTYPES, precision
from trainer.activations import recompute_layers
from trainer.data.scanning import ALONE, Scan
from trainer.data.sources import local_path
from trainer.task import Slice, Unfilled
from trainer.weights.bases import digest_of
from trainer.weights.home import without_weights
from trainer.weights.initial import freeze

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, TokenizersBackend


@dataclass(frozen=True)
class Origin:
    """Where a run's model comes from. Its weights are not read yet."""

    base: Base | None
    """None: all weights are in a checkpoint."""
    shape: dict[str, Any] | None
    """The model of that checkpoint, as `causal.rebuild` takes it."""
    tokenizer: "TokenizersBackend"
    config: "PreTrainedConfig"
    name: str
    """Its name in error messages."""
    confined: Confined | None
    """The tokenizer in a process of its own, if it may be a stranger's and nobody limits this one."""

    def decode(self, tokens: list[int], *, special: bool = True) -> str:
        """Returns tokens as text. `special`: with the special ones. Raises DataError."""
        if self.confined is not None:
            return self.confined.decode(tokens, special=special)
        text = self.tokenizer.decode(tokens, skip_special_tokens=not special, clean_up_tokenization_spaces=False)
        assert isinstance(text, str)
        return text

    @property
    def vocabulary(self) -> int:
        """The tokens that the model has."""
        return self.config.vocab_size

    @property
    def context(self) -> int:
        """Tokens of the longest text that the model takes."""
        return self.config.max_position_embeddings


@dataclass(frozen=True)
class LanguageModel:
    """A model, and what a checkpoint says of it beside its weights."""

    module: nn.Module
    metadata: dict[str, Any]
    files: dict[str, bytes]
    """Those with which transformers, or peft, loads a checkpoint's folder, beside `model.safetensors`."""
    unfilled: Unfilled | None
    """The weights of what is on the meta device; None: nothing is."""


def open_origin(
    config: CausalLm, *, weights: str, metadata: Mapping[str, Any] | None, confined: bool = False
) -> Origin:
    """Reads all but the weights. `weights`: the base's folder; `none`: the one that the configuration names.

    `metadata`: the state of a checkpoint. `confined`: a stranger's tokenizer is used within limits.

    Raises DataError and ConfigError.
    """
    saved = None if metadata is None else _described(metadata, "the checkpoint")
    if metadata is None or saved is None or saved.tokenizer is None:
        base = open_base(_folder(config, weights), confined=confined)
        child = _child(base.tokenizer) if confined else None
        origin = Origin(base, None, base.tokenizer, base.config, str(base.folder), child)
    else:
        shape = opening.shape_of(saved.model_config_, metadata["model"])
        model_config = config_from(shape)
        tokenizer = opening.tokenizer_of(saved.tokenizer, vocabulary=model_config.vocab_size)
        child = _child(tokenizer) if confined else None
        origin = Origin(None, shape, tokenizer, model_config, "the checkpoint's model", child)
    if config.data.max_length > origin.context:
        raise ConfigError(
            f"data.max_length is {config.data.max_length}, and {origin.name} takes {origin.context} tokens at most"
        )
    return origin


def _child(tokenizer: "TokenizersBackend") -> Confined | None:
    content = tokenizer.backend_tokenizer.to_str()
    return None if is_plain(content) else Confined(content)


def make_language_model(
    origin: Origin, config: CausalLm, *, metadata: Mapping[str, Any] | None, device: torch.device, scan: Scan = ALONE
) -> LanguageModel:
    """Returns the model on `device`; with `fsdp` what the origin has weights of is on the meta device.

    The caller loads the weights of the checkpoint that `metadata` is of. `scan`: the ranks that call it together, and
    the job that is told that they still read. A collective with an adapter. Raises DataError and ConfigError.
    """
    if origin.base is not None:
        model = _on_base(origin.base, config, metadata=metadata, device=device, scan=scan)
    else:
        assert metadata is not None and origin.shape is not None, "a model has a base, or is a checkpoint's"
        model = _rebuilt(config, metadata, shape=origin.shape, device=device, scan=scan)
    if config.training.activation_checkpointing:
        recompute_layers(model.module)
    return model


def _on_base(
    base: Base, config: CausalLm, *, metadata: Mapping[str, Any] | None, device: torch.device, scan: Scan
) -> LanguageModel:
    sharded, adapts = config.distributed.strategy == "fsdp", config.model.method == "lora"
    digest = digest_of(base, scan) if adapts or metadata is not None else ""
    if metadata is not None:
        _check_digest(metadata["adapter"], digest=digest, name=str(base.folder), field="model.weights")
        opening.check_adapter(base, config, metadata["model"])
    dtype = DTYPES.get(precision(config.training.precision, device), torch.float32) if adapts else torch.float32
    options: dict[str, Any] = {"attention": config.model.attention, "chunk_tokens": config.loss.chunk_tokens}
    if sharded:
        with without_weights():
            module = causal.rebuild(base.config.to_dict(), dtype=dtype, **options)
    else:
        module = load_model(base, dtype=dtype, device=device, on_tensor=scan.beat, **options)
    model_config = causal.config_of(module)
    parts: dict[str, Slice] | None = {**slices(base)} if sharded else None
    if adapts:
        adapter, files = _adapted(module, base, config, digest=digest)
        metadata = {"model_config": model_config, "adapter": adapter}
        parts = parts and _below_adapters(module, parts)
        return LanguageModel(module, metadata, files, _unfilled(parts, scan, base=base))
    freeze(module, config.model.freeze)
    kept = {"model_config": model_config, "tokenizer": tokenizer_state(base.tokenizer)}
    return _whole(module, config, kept, _unfilled(parts, scan, base=base))


def _adapted(
    module: nn.Module, base: Base, config: CausalLm, *, digest: str
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Puts an adapter on the model. Returns what a checkpoint says of it, and the file that does for peft."""
    wanted, name = config.model.lora, _base_name(config, base)
    adapter = {
        "rank": wanted.rank,
        "alpha": wanted.alpha,
        "dropout": wanted.dropout,
        "targets": lora.inject(module, wanted),
        "base": {"digest": digest, "name": name, "model_type": base.config.model_type},
    }
    described, _ = lora.as_peft(module, wanted, base=name)
    return adapter, {"adapter_config.json": json.dumps(described, indent=2).encode()}


def _below_adapters(module: nn.Module, weights: Mapping[str, Slice]) -> dict[str, Slice]:
    """Returns the weights of a base by the names that they have in a model with an adapter."""
    names = [name for name, parameter in module.named_parameters() if parameter.is_meta]
    return {name: weights[name.replace(".base_layer.", ".")] for name in names}


def _unfilled(parts: Mapping[str, Slice] | None, scan: Scan, *, base: Base) -> Unfilled | None:
    return None if parts is None else Unfilled({**parts}, on_tensor=scan.beat, check=base.check_unchanged)


def _rebuilt(
    config: CausalLm, metadata: Mapping[str, Any], *, shape: Mapping[str, Any], device: torch.device, scan: Scan
) -> LanguageModel:
    sharded = config.distributed.strategy == "fsdp"
    with without_weights() if sharded else torch.device(device):
        module = causal.rebuild(shape, attention=config.model.attention, chunk_tokens=config.loss.chunk_tokens)
    freeze(module, config.model.freeze)
    kept = {key: metadata[key] for key in ("model_config", "tokenizer")}
    parts = Unfilled(dict(metadata.get("raw") or metadata["model"]), on_tensor=scan.beat) if sharded else None
    return _whole(module, config, kept, parts)


def _whole(module: nn.Module, config: CausalLm, metadata: dict[str, Any], unfilled: Unfilled | None) -> LanguageModel:
    length = config.data.max_length
    files = transformers_files(metadata["model_config"], metadata["tokenizer"], max_length=length)
    return LanguageModel(module, metadata, files, unfilled)


def check_start(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str | None:
    """Returns what to say if a run with the metadata `ours` starts from a checkpoint with `theirs`.

    Raises DataError if its adapter is of another base, and ConfigError if it fits the run in no other way.
    """
    _described(theirs, "init_from: the checkpoint")
    own, other = ours.get("adapter"), theirs.get("adapter")
    if own is None and other is None:
        return None
    if own is None or other is None:
        has = "all weights of a model" if other is None else f"an adapter on {_short(other['base']['name'])}"
        instead = "full" if other is None else "lora"
        raise ConfigError(
            f"init_from: the checkpoint has {has}: set config.model.method to {instead}, or export it "
            "(torchyard export --to hf) and name that folder as config.model.weights"
        )
    base = own["base"]
    _check_digest(other, digest=base["digest"], name=base["name"], field="init_from")
    rank, alpha = other.get("rank"), other.get("alpha")
    if own["rank"] != rank:
        raise ConfigError(
            f"init_from: the adapter has rank {_short(rank)}, and config.model.lora.rank is {own['rank']}: "
            f"set it to {_short(rank)}"
        )
    if own["alpha"] == alpha:
        return None
    return f"its alpha was {_short(alpha)}, and is {own['alpha']}: its updates count accordingly"


def _check_digest(adapter: Mapping[str, Any], *, digest: str, name: str, field: str) -> None:
    trained_on = adapter["base"]
    if trained_on["digest"] != digest:
        its_name, kind = _short(trained_on["name"]), _short(trained_on.get("model_type"))
        raise DataError(
            f"{field}: the adapter was trained on {its_name} (a {kind}, digest {trained_on['digest'][:12]}…), and "
            f"{name} is another base (digest {digest[:12]}…): name the one that it was trained on"
        )


def _described(state: Mapping[str, Any], what: str) -> opening.LanguageMetadata:
    """Returns what a checkpoint says of its model. Raises DataError, which begins with `what`."""
    try:
        return opening.described(state)
    except ValidationError as error:
        raise DataError(f"{what} says of its model what cannot be: {reason(error)}") from error


def _short(said: Any) -> str:
    return str(said)[:100]


def _base_name(config: CausalLm, base: Base) -> str:
    """Returns what people call a base: the last part of its path, or its bundle."""
    weights = config.model.weights
    return weights if digest_in(weights) else PurePosixPath(unquote(weights)).name or base.folder.name


def _folder(config: CausalLm, weights: str) -> Path:
    named = config.model.weights if weights == "none" else weights
    if digest_in(named):
        raise ConfigError(f"model.weights is {named}, which a job alone can read: give the folder of the base")
    return local_path(named)
