"""Opens the base of a language model: a folder as Hugging Face has it. Nothing is downloaded, and no code is run."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from torchyard.contract.errors import DataError
from torchyard.models.basefiles import (
    CONFIG,
    MOST_BYTES,
    TOKENIZER,
    check_vocabulary,
    described,
    read_config,
    read_tokenizer,
    template_of,
)
from torchyard.models.causal import CHUNK_TOKENS, causal, from_config, tied_names
from torchyard.models.checkpoint import raise_unless_failed, reason
from torchyard.models.library import configure_transformers
from torchyard.models.openfile import OpenFile
from torchyard.models.weightfiles import Slice, WeightFiles

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, TokenizersBackend


@dataclass(frozen=True)
class Base:
    """A base whose configuration and tokenizer were read. Its weight files are open, and their tensors unread."""

    folder: Path
    field: str
    config: "PreTrainedConfig"
    tokenizer: "TokenizersBackend"
    chat_template: str | None
    files: WeightFiles
    read: Mapping[str, str]
    """The sha256 of each other file that is used."""

    @cached_property
    def digest(self) -> str:
        """The sha256 over the names and digests of all files that are used. All weights are read. Raises DataError."""
        return self.hashed()

    def hashed(self, on_part: Callable[[], None] = lambda: None) -> str:
        """Returns `digest`, and calls `on_part` after each part of a weight file that it reads. Raises DataError."""
        with _named(self.folder, self.field):
            digests = {**self.read, **self.files.sha256(on_part)}
        return hashlib.sha256("".join(f"{name}\0{digests[name]}\n" for name in sorted(digests)).encode()).hexdigest()

    def check_unchanged(self) -> None:
        """Raises DataError if its weights may be others than when it was opened."""
        with _named(self.folder, self.field):
            self.files.check_unchanged()


def open_base(folder: Path, *, field: str = "model.weights", confined: bool = False) -> Base:
    """Reads and checks a folder, all but the weights. Raises DataError, which names `field`, the file and a remedy.

    `confined`: a tokenizer that takes much to read is refused. A job reads it within the limits of the job.
    """
    if not folder.is_dir():
        raise DataError(f"{field}: there is no folder that can be read: {folder}")
    configure_transformers()
    with _named(folder, field):
        names = {path.name for path in folder.iterdir()}
        contents = {name: OpenFile(folder, name).read(most) for name, most in MOST_BYTES.items() if name in names}
        if CONFIG not in contents:
            raise DataError(_without_config(names))
        described(contents[CONFIG])  # what the folder is, before what its weights lack
        files = WeightFiles(folder)
        config = read_config(contents[CONFIG], tensors=len(files.views))
        tokenizer = read_tokenizer(contents, names=names, folder=folder, confined=confined)
        check_vocabulary(tokenizer, config)
        # Of several, the one that is used, and that a checkpoint keeps.
        tokenizer.chat_template = template_of(tokenizer)  # pyright: ignore[reportAttributeAccessIssue] its stub lacks it
        return Base(
            folder=folder,
            field=field,
            config=config,
            tokenizer=tokenizer,
            chat_template=tokenizer.chat_template,
            files=files,
            read={name: hashlib.sha256(content).hexdigest() for name, content in contents.items()},
        )


def load_model(
    base: Base,
    *,
    dtype: torch.dtype = torch.float32,
    attention: str = "sdpa",
    device: torch.device | str = "cpu",
    chunk_tokens: int = CHUNK_TOKENS,
    on_tensor: Callable[[], None] = lambda: None,
) -> nn.Module:
    """Returns the model of a base with its weights, as `causal` makes it. Raises DataError.

    `on_tensor`: called after each tensor that was read.
    """
    found = slices(base)  # before memory is taken for what the configuration says
    module = causal(from_config(base.config, dtype=dtype, attention=attention), chunk_tokens=chunk_tokens)
    module.to(device)  # of the CPU's memory nothing was written
    with torch.no_grad(), _named(base.folder, base.field):
        for name, own in module.state_dict(keep_vars=True).items():
            own.copy_(found[name][...])
            if not bool(own.isfinite().all()):
                raise DataError(f"its weights are not finite: {name}")
            on_tensor()
        base.files.check_unchanged()
    return module


def slices(base: Base) -> dict[str, Slice]:
    """Returns the weights of a base by the names of the model's parameters, tied ones once. Raises DataError.

    Their shapes are those of the parameters.
    """
    with _named(base.folder, base.field):
        with torch.device("meta"):
            model = from_config(base.config, dtype=torch.float32, attention="sdpa")
        own: Mapping[str, Tensor] = model.state_dict()
        views = _views(model, own, base.files.views)
        tied = tied_names(model)
        for name, source in tied.items():
            _check_tied(views, name, source)
        return {name: _fitting(name, value, views) for name, value in own.items() if name not in tied}


def _views(model: Any, own: Mapping[str, Tensor], views: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the tensors of files by the names of the model, which transformers gave other names in other versions."""
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightRenaming, rename_source_key

    renamings = [each for each in get_model_conversion_mapping(model) if isinstance(each, WeightRenaming)]
    found: dict[str, Any] = {}
    for old, view in views.items():
        name, _ = rename_source_key(old, renamings, [], model.base_model_prefix, own)
        if name in found:
            raise DataError(f"its files have two tensors for {name}, of which {old} is one")
        found[name] = view
    return found


def _check_tied(views: dict[str, Any], name: str, source: str) -> None:
    """Gives `source` the tensor of `name` if it has none. Raises DataError if both have tensors that are not equal."""
    if name not in views:
        return
    if source not in views:
        views[source] = views[name]
    elif views[name].get_shape() != views[source].get_shape() or not torch.equal(views[name][...], views[source][...]):
        raise DataError(
            f"{CONFIG} says that {name} and {source} are one, and they are not: set tie_word_embeddings to false in it"
        )


def _fitting(name: str, own: Tensor, views: Mapping[str, Any]) -> Slice:
    if name not in views:
        raise DataError(f"its model needs {name}, and no file has it: is {CONFIG} that of these weights?")
    found = Slice(views[name], name=name)
    if found.shape != own.shape:
        raise DataError(f"its model needs {name} of {tuple(own.shape)}, and its files have one of {tuple(found.shape)}")
    return found


def _without_config(names: set[str]) -> str:
    if "adapter_config.json" in names:
        return (
            f"it is an adapter, and no base: use the base that it was trained on, or merge them ({CONFIG} is missing)"
        )
    kept = f", but {TOKENIZER}" if TOKENIZER in names else ""
    return f"there is no {CONFIG}{kept}: name the folder that transformers saved the base in"


@contextmanager
def _named(folder: Path, field: str) -> Generator[None]:
    """Makes all that goes wrong a DataError that names the field and the folder."""
    try:
        yield
    except BaseException as error:  # the library's errors for broken files have no common base class
        raise_unless_failed(error)
        raise DataError(f"{field}: {folder} cannot be used: {reason(error)}") from error
