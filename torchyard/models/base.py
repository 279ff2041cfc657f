"""Opens the base of a language model: a folder as Hugging Face has it. Nothing is downloaded, and no code is run."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
import hashlib
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from torchyard.contract.errors import DataError
from torchyard.contract.recipes.causal import HF_CAUSAL
from torchyard.models.causal import CHUNK_TOKENS, causal, from_config, tied_names
from torchyard.models.checkpoint import raise_unless_failed, reason
from torchyard.models.library import configure_transformers
from torchyard.models.weightfiles import OpenFile, Slice, WeightFiles

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, TokenizersBackend

CONFIG, TEMPLATE = "config.json", "chat_template.jinja"
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", TEMPLATE)
_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class Base:
    """A base whose configuration and tokenizer were read. Its weight files are open, and their tensors unread."""

    folder: Path
    config: "PreTrainedConfig"
    tokenizer: "TokenizersBackend"
    chat_template: str | None
    weights: WeightFiles
    small: Mapping[str, str]
    """The sha256 of each other file that was read."""

    @cached_property
    def digest(self) -> str:
        """The sha256 over the names and digests of all files that are used."""
        files = {**self.small, **self.weights.sha256()}
        self.weights.check_unchanged()
        return hashlib.sha256("".join(f"{name}\0{files[name]}\n" for name in sorted(files)).encode()).hexdigest()


def open_base(folder: Path, *, field: str = "model.weights") -> Base:
    """Reads and checks a folder, all but the weights. Raises DataError, which names `field`, the file and a remedy."""
    if not folder.is_dir():
        raise DataError(f"{field}: there is no folder {folder}")
    configure_transformers()
    try:
        return _opened(folder)
    except BaseException as error:  # the library's errors for broken files have no common base class
        raise_unless_failed(error)
        raise DataError(f"{field}: {folder} cannot be used: {reason(error)}") from error


def load_model(
    base: Base,
    *,
    dtype: torch.dtype = torch.float32,
    attention: str = "sdpa",
    device: torch.device | str = "cpu",
    chunk_tokens: int = CHUNK_TOKENS,
) -> nn.Module:
    """Returns the model of a base with its weights. Raises DataError."""
    with torch.device(device):
        module = causal(from_config(base.config, dtype=dtype, attention=attention), chunk_tokens=chunk_tokens)
    found = slices(base)
    with torch.no_grad():
        for name, own in module.state_dict(keep_vars=True).items():
            own.copy_(found[name][...])
            if not bool(own.isfinite().all()):
                raise DataError(f"{base.folder} cannot be used: its weights are not finite: {name}")
    base.weights.check_unchanged()
    return module


def slices(base: Base) -> dict[str, Slice]:
    """Returns the weights of a base by the names of the model's parameters. Raises DataError if they do not fit."""
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightRenaming, rename_source_key

    with torch.device("meta"):
        model: Any = from_config(base.config, dtype=torch.float32, attention="sdpa")
    own = nn.Module.state_dict(model)
    mapping = get_model_conversion_mapping(model)
    renamings = [each for each in mapping if isinstance(each, WeightRenaming)]
    found: dict[str, Slice] = {}
    for name, tensor in base.weights.items():
        new, _ = rename_source_key(name, renamings, [], model.base_model_prefix, own)
        found[new] = tensor
    wanted = [name for name in own if name not in tied_names(model)]
    for name in wanted:
        shape = found[name].shape if name in found else None
        if shape != own[name].shape:
            has = "no such tensor" if shape is None else f"one of {tuple(shape)}"
            raise DataError(f"{base.folder} cannot be used: its model needs {name} of {tuple(own[name].shape)}: {has}")
    return {name: found[name] for name in wanted}


def _opened(folder: Path) -> Base:
    small: dict[str, str] = {}
    with TemporaryDirectory(prefix="torchyard-") as copy:  # what is hashed is what is read
        for name in (CONFIG, *_TOKENIZER):
            if (folder / name).exists():
                content = OpenFile(folder / name).read(_MOST_BYTES)
                small[name] = hashlib.sha256(content).hexdigest()
                Path(copy, name).write_bytes(content)
        config = _config(Path(copy))
        tokenizer = _tokenizer(Path(copy))
    if len(tokenizer) > config.vocab_size:
        raise DataError(f"its tokenizer has {len(tokenizer)} tokens, its model {config.vocab_size}")
    return Base(
        folder=folder,
        config=config,
        tokenizer=tokenizer,
        chat_template=tokenizer.chat_template,
        weights=WeightFiles(folder),
        small=small,
    )


def _config(folder: Path) -> "PreTrainedConfig":
    from transformers import AutoConfig

    raw = json.loads((folder / CONFIG).read_bytes())
    kind = raw.get("model_type")
    if kind not in HF_CAUSAL:
        raise DataError(f"its model_type is {str(kind)[:100]!r}, not one of {', '.join(HF_CAUSAL)}")
    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    for key, value in config.to_dict().items():
        if ("dropout" in key or "pdrop" in key) and isinstance(value, float) and key not in raw:
            setattr(config, key, 0.0)  # the type's own, of which the base says nothing
    return config


def _tokenizer(folder: Path) -> "TokenizersBackend":
    from transformers import TokenizersBackend

    if not (folder / "tokenizer.json").exists():
        raise DataError("it has no tokenizer.json")
    # Not that of a type, which adds tokens of its own.
    return TokenizersBackend.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
