"""Image classifiers: a small CNN, and the models of torchvision and other libraries by name."""

from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from torchyard.contract.errors import ConfigError
from torchyard.models import library

SMALL_CNN = "small_cnn"


class SmallCNN(nn.Module):
    """Three convolutions and two linear layers, for pictures of at least 8×8 pixels with any number of channels.

    All its operations have deterministic kernels on CUDA.
    """

    GRID = 4

    def __init__(self, *, channels: int, classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *_convolution(channels, 32),
            *_convolution(32, 64, stride=2),
            *_convolution(64, 64),
        )
        self.classifier = nn.Sequential(
            nn.Linear(64 * self.GRID**2, 128),
            nn.ReLU(),
            nn.Dropout(0.25),
            nn.Linear(128, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(_pool(self.features(images), self.GRID).flatten(1))


def channels_for(name: str, channels: int) -> int:
    """Returns the input channels of a model for data with `channels` channels: three for all but ours."""
    return channels if name == SMALL_CNN else 3


def check_name(name: str) -> None:
    """Raises ConfigError with similar names if there is no such model."""
    if library.is_library(name):
        library.check_pictures(name)
        return
    names = [SMALL_CNN, *_torchvision_names()] if name != SMALL_CNN else [SMALL_CNN]
    if name in names:
        return
    near = get_close_matches(name, names, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(names)}"
    raise ConfigError(f"model.name: there is no model {name!r}; {hint}")


def is_published(weights: str) -> bool:
    """Returns whether `weights` is the name of published weights: not `none`, a path or a `file://` URL."""
    return weights != "none" and "/" not in weights


def build(
    name: str,
    *,
    channels: int,
    height: int,
    width: int,
    classes: int,
    for_published: bool = False,
    options: library.Options | None = None,
) -> nn.Module:
    """Builds a model with random weights; `options` are those of a type of transformers.

    `for_published`: published weights are loaded afterwards, and some models then need another form. Raises ConfigError
    if there is no such model, or if it cannot take such pictures.
    """
    shape = (channels_for(name, channels), height, width)
    model = construct(
        name,
        channels=channels,
        height=height,
        width=width,
        classes=classes,
        for_published=for_published,
        options=options,
    )
    with _naming_the_size(name, height=height, width=width), torch.no_grad():
        model.eval()(torch.zeros(1, *shape))
    return model.train()


def construct(
    name: str,
    *,
    channels: int,
    height: int,
    width: int,
    classes: int,
    for_published: bool,
    options: library.Options | None,
) -> nn.Module:
    """Builds what `build` does, and computes nothing. Raises ConfigError."""
    check_name(name)
    with _naming_the_size(name, height=height, width=width):
        if library.is_library(name):
            return library.pictures(name, options=options or {}, height=height, width=width, classes=classes)
        channels = channels_for(name, channels)
        return _construct(
            name, channels=channels, height=height, width=width, classes=classes, for_published=for_published
        )


def fit_position_embeddings(model: nn.Module, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns weights for the model's picture size: interpolates the position embeddings of a vision transformer."""
    from torchvision.models import VisionTransformer
    from torchvision.models.vision_transformer import interpolate_embeddings

    if not isinstance(model, VisionTransformer) or "encoder.pos_embedding" not in tensors:
        return tensors
    return dict(interpolate_embeddings(model.image_size, model.patch_size, OrderedDict(tensors)))


@contextmanager
def _naming_the_size(name: str, *, height: int, width: int) -> Generator[None]:
    try:
        yield
    except (RuntimeError, ValueError, AssertionError, TypeError, IndexError, ZeroDivisionError) as error:
        if "allocate memory" in str(error):
            raise  # the machine has too little memory: the pictures may be fine
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"{name} cannot take pictures of {width}×{height} pixels: set data.image_size ({reason})"
        ) from error


def _construct(name: str, *, channels: int, height: int, width: int, classes: int, for_published: bool) -> nn.Module:
    if name == SMALL_CNN:
        return SmallCNN(channels=channels, classes=classes)
    from torchvision.models import get_model

    extra: dict[str, Any] = {}
    if name in {"googlenet", "inception_v3"}:
        # Their published weights come from TensorFlow, which normalizes differently.
        extra = {"aux_logits": False, "init_weights": True, "transform_input": for_published}
    elif name.startswith("vit_"):
        extra = {"image_size": height}
    elif name.startswith("maxvit"):
        extra = {"input_size": (height, width)}
    return get_model(name, weights=None, num_classes=classes, **extra)


def _torchvision_names() -> list[str]:
    from torchvision import models

    return models.list_models(module=models)


def _convolution(inputs: int, outputs: int, *, stride: int = 1) -> tuple[nn.Module, ...]:
    convolution = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
    return convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)


def _pool(maps: Tensor, grid: int) -> Tensor:
    """Averages to `grid` × `grid`. The gradient of adaptive pooling is not deterministic on CUDA."""
    height, width = maps.shape[-2:]
    tall, wide = -(-height // grid), -(-width // grid)
    below, right = tall * grid - height, wide * grid - width
    padded = functional.pad(maps, (right // 2, right - right // 2, below // 2, below - below // 2))
    return functional.avg_pool2d(padded, (tall, wide))
