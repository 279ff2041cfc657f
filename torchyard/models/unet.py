"""U-Nets (Ronneberger et al., arXiv 1505.04597): an encoder, and a decoder that concatenates the encoder's maps.

All take three channels and sides that are multiples of 32, and return `outputs` logits for each pixel: (samples,
outputs, height, width). All their operations have deterministic kernels on CUDA, which bilinear upsampling does not
have.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

ENCODERS = {"unet_vgg16": "vgg16", "unet_resnet34": "resnet34", "unet_resnet101": "resnet101"}
"""The torchvision model whose weights fit the `encoder` of a U-Net."""


def build(name: str, *, outputs: int = 1) -> "UNet | UNet16":
    """Builds `unet_small` or a U-Net in ENCODERS, with random weights."""
    if name == "unet_vgg16":
        return UNet16(outputs=outputs)
    encoder = ResNetEncoder(ENCODERS[name]) if name in ENCODERS else SmallEncoder()
    return UNet(encoder, widths=(256, 128, 64, 32, 16) if name in ENCODERS else (64, 32, 16), outputs=outputs)


class UNet(nn.Module):
    """Each block of the decoder doubles the size by nearest-pixel upsampling and concatenates the encoder's map."""

    def __init__(self, encoder: "SmallEncoder | ResNetEncoder", *, widths: Sequence[int], outputs: int) -> None:
        super().__init__()
        self.encoder = encoder
        *skipped, deepest = encoder.channels
        self.decoder = nn.ModuleList()
        for width in widths:
            skip = skipped.pop() if skipped else 0
            self.decoder.append(_two_convolutions(deepest + skip, width))
            deepest = width
        self.head = nn.Conv2d(deepest, outputs, 3, padding=1)

    def forward(self, pictures: Tensor) -> Tensor:
        *skipped, maps = self.encoder(pictures)
        for block in self.decoder:
            maps = functional.interpolate(maps, scale_factor=2.0, mode="nearest")
            maps = block(torch.cat([maps, skipped.pop()], dim=1) if skipped else maps)
        return self.head(maps)


class UNet16(nn.Module):
    """VGG16 without batch norm, and a decoder of 32 base filters: TernausNet (Iglovikov & Shvets, arXiv 1801.05746)."""

    FILTERS = 32

    def __init__(self, *, outputs: int) -> None:
        super().__init__()
        self.encoder = VGG16Encoder()
        filters = self.FILTERS
        self.center = _up(512, 16 * filters, 8 * filters)
        self.decoder = nn.ModuleList(
            [
                _up(512 + 8 * filters, 16 * filters, 8 * filters),
                _up(512 + 8 * filters, 16 * filters, 8 * filters),
                _up(256 + 8 * filters, 8 * filters, 2 * filters),
                _up(128 + 2 * filters, 4 * filters, filters),
                nn.Sequential(nn.Conv2d(64 + filters, filters, 3, padding=1), nn.ReLU(inplace=True)),
            ]
        )
        self.head = nn.Conv2d(filters, outputs, 1)
        _kaiming(self)

    def forward(self, pictures: Tensor) -> Tensor:
        *skipped, deepest = self.encoder(pictures)
        maps = self.center(deepest)
        for block in self.decoder:
            maps = block(torch.cat([maps, skipped.pop()], dim=1))
        return self.head(maps)


class SmallEncoder(nn.Module):
    """Returns maps of the whole size, a half, a quarter and an eighth."""

    def __init__(self) -> None:
        super().__init__()
        self.channels: tuple[int, ...] = (16, 32, 64, 128)
        inputs = (3, *self.channels[:-1])
        self.stages = nn.ModuleList(
            _two_convolutions(first, second) for first, second in zip(inputs, self.channels, strict=True)
        )

    def forward(self, pictures: Tensor) -> list[Tensor]:
        maps: list[Tensor] = []
        for stage in self.stages:
            maps.append(stage(functional.max_pool2d(maps[-1], 2) if maps else pictures))
        return maps


class ResNetEncoder(nn.Module):
    """A torchvision ResNet without its classifier, with its names. Returns maps of a half to a 32nd of the size."""

    def __init__(self, name: str) -> None:
        from torchvision.models import resnet34, resnet101

        super().__init__()
        whole = (resnet101 if name == "resnet101" else resnet34)(weights=None)
        self.conv1, self.bn1, self.relu, self.maxpool = whole.conv1, whole.bn1, whole.relu, whole.maxpool
        self.layer1, self.layer2, self.layer3, self.layer4 = whole.layer1, whole.layer2, whole.layer3, whole.layer4
        wide = whole.fc.in_features
        self.channels: tuple[int, ...] = (64, wide // 8, wide // 4, wide // 2, wide)

    def forward(self, pictures: Tensor) -> list[Tensor]:
        maps = [self.relu(self.bn1(self.conv1(pictures)))]
        maps.append(self.layer1(self.maxpool(maps[0])))
        for layer in (self.layer2, self.layer3, self.layer4):
            maps.append(layer(maps[-1]))
        return maps


class VGG16Encoder(nn.Module):
    """torchvision's VGG16 without its classifier, with its names. Returns maps of the whole size to a 32nd."""

    def __init__(self) -> None:
        from torchvision.models.vgg import cfgs, make_layers

        super().__init__()
        self.features = make_layers(cfgs["D"])

    def forward(self, pictures: Tensor) -> list[Tensor]:
        maps = pictures
        skipped: list[Tensor] = []
        for layer in self.features:
            if isinstance(layer, nn.MaxPool2d):
                skipped.append(maps)
            maps = layer(maps)
        return [*skipped, maps]


def _two_convolutions(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(*_convolution(inputs, outputs), *_convolution(outputs, outputs))


def _convolution(inputs: int, outputs: int) -> tuple[nn.Module, ...]:
    return nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)


def _up(inputs: int, middle: int, outputs: int) -> nn.Sequential:
    """Returns a block that doubles the size by a transposed convolution."""
    return nn.Sequential(
        nn.Conv2d(inputs, middle, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.ConvTranspose2d(middle, outputs, 4, stride=2, padding=1),
        nn.ReLU(inplace=True),
    )


def _kaiming(model: nn.Module) -> None:
    """Initializes as He et al. (arXiv 1502.01852): without norms, initial weights must keep the signal's variance."""
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
