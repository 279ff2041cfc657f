"""Turns pixels into the inputs of a model."""

import torch
from torch import Tensor

from torchyard.contract.recipes import Normalization

IMAGENET = Normalization(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
"""The normalization of ImageNet, with which torchvision's weights were trained."""


class Normalizer:
    """Turns pictures into the inputs of a model: floats around zero, with the model's channels."""

    def __init__(self, values: Normalization, *, channels: int, device: torch.device) -> None:
        mean, std = (torch.tensor(numbers).reshape(1, -1, 1, 1) for numbers in (values.mean, values.std))
        self._scale = (1 / std).to(device)
        self._shift = (-mean / std).to(device)
        self._channels = channels

    def __call__(self, pictures: Tensor) -> Tensor:
        scale = self._scale / 255 if pictures.dtype == torch.uint8 else self._scale
        normal = torch.addcmul(self._shift, pictures.float(), scale)
        return normal if normal.shape[1] == self._channels else normal.expand(-1, self._channels, -1, -1)
