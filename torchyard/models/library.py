"""Models of timm and transformers, by names from lists, with random weights.

Nothing is downloaded, and no code runs but that of the installed libraries.
"""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import cache
import os
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from torchyard.contract.errors import ConfigError, DataError
from torchyard.contract.recipes import HF, HF_PICTURES, TIMM

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

Options = Mapping[str, int | list[int]]


def is_library(name: str) -> bool:
    """Returns whether a name is that of a model of timm or transformers."""
    return name.startswith((TIMM, HF))


def check_pictures(name: str) -> None:
    """Raises ConfigError if the library is not installed, or has no such model of pictures."""
    if name.startswith(TIMM):
        _check_timm(name.removeprefix(TIMM))
    elif name.removeprefix(HF) not in HF_PICTURES:
        raise ConfigError(f"model.name: hf/ has {', '.join(HF_PICTURES)}, and not {name!r}")


def pictures(name: str, *, options: Options, height: int, width: int, classes: int) -> nn.Module:
    """Returns a classifier of pictures with three channels, which returns logits. Raises ConfigError."""
    check_pictures(name)
    if name.startswith(TIMM):
        return _timm_model(name.removeprefix(TIMM), height=height, width=width, classes=classes)
    from transformers import AutoModelForImageClassification

    config = config_of_type(name.removeprefix(HF), options=options, num_labels=classes)
    if hasattr(config, "image_size"):
        config.image_size = height if height == width else (height, width)
    model = AutoModelForImageClassification.from_config(config, dtype=torch.float32)
    model.__class__ = _of_pictures(type(model))
    return model


def config_of_type(kind: str, *, options: Options, **settings: Any) -> "PreTrainedConfig":
    """Returns transformers' configuration of a model type, with the job's options. Raises ConfigError."""
    configure_transformers()
    from transformers import AutoConfig

    own = AutoConfig.for_model(kind)
    unknown = [key for key in options if not hasattr(own, key)]
    if unknown:
        raise ConfigError(f"model.options: hf/{kind} has no {unknown[0]}")
    try:
        return AutoConfig.for_model(kind, **settings, **options)
    except Exception as error:  # each type has errors of its own
        raise ConfigError(f"model.options: hf/{kind} cannot be built: {_reason(error)}") from error


def own_keys(kind: str) -> frozenset[str]:
    """Returns the keys of a type's configuration that say what it computes: those that not all types have."""
    configure_transformers()
    from transformers import AutoConfig, PreTrainedConfig

    return frozenset(AutoConfig.for_model(kind).to_dict()) - frozenset(PreTrainedConfig().to_dict())


def check_shapes(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Raises DataError unless the tensors have the names and the shapes of a module's, which needs no memory."""
    for name, own in module.state_dict().items():
        found = tensors.get(name)
        if found is None or found.shape != own.shape:
            has = "no such tensor" if found is None else f"one of {tuple(found.shape)}"
            raise DataError(f"its model needs {name} of {tuple(own.shape)}, and it has {has}")


def configure_transformers() -> None:
    """Turns off network access, and logs below errors. Call it before the first import from transformers."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


class _OfPictures(nn.Module):
    """A mixin for models of transformers: the model takes pictures and returns only logits."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(pixel_values=images).logits


@cache
def _of_pictures(base: type[nn.Module]) -> type[nn.Module]:
    return type(base.__name__, (_OfPictures, base), {})


def _timm() -> ModuleType:
    os.environ["HF_HUB_OFFLINE"] = "1"  # what timm downloads with
    try:
        import timm
    except ImportError as error:
        raise ConfigError("model.name: timm is not installed where this job runs; the operator can add it") from error
    return timm


def _check_timm(name: str) -> None:
    names: Sequence[str] = _timm().list_models()
    if name in names:
        return
    near = get_close_matches(name, names, n=3)
    hint = f"did you mean {' or '.join(TIMM + other for other in near)}?" if near else "timm.list_models() has them"
    raise ConfigError(f"model.name: timm has no model {name!r}; {hint}")


def _timm_model(name: str, *, height: int, width: int, classes: int) -> nn.Module:
    timm = _timm()
    published = timm.get_pretrained_cfg(name, allow_unregistered=True)
    size = {"img_size": (height, width)} if published is not None and published.fixed_input_size else {}
    return cast(nn.Module, timm.create_model(name, pretrained=False, num_classes=classes, in_chans=3, **size))


def _reason(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
