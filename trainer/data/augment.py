"""Random augmentation of training pictures and their masks."""

from collections.abc import Sequence
import math

import torch
from torch import Tensor
from torch.nn import functional

AREA = (0.25, 1.0)
"""Share of the picture that `crop` keeps."""
RATIO = (3 / 4, 4 / 3)
"""The aspect ratio of what `crop` keeps, relative to that of the picture."""
JITTER = 0.3
"""The largest change of brightness, contrast and saturation by `color`, around a factor of 1."""
GREY = (0.299, 0.587, 0.114)
"""Shares of red, green and blue in a grey value (ITU-R BT.601)."""

DRAWS = 4
"""Random numbers for one change."""

_RATIO_LOG = (math.log(RATIO[0]), math.log(RATIO[1]))
_EXACT = {"hflip", "vflip", "rotate90"}
_GOLDEN = 0x9E3779B97F4A7C15


class Augment:
    """Applies the changes in `names`, in that order: hflip, vflip, rotate90, crop, color.

    The changes of a sample depend on the seed, the epoch and the sample's index alone. They are the same for any number
    of ranks and loader processes, and after a resume. Never waits for the device.

    hflip, vflip: with probability 1/2. rotate90: a random number of quarter turns; only half turns if the picture is
    not square. crop: a random part, resized to the picture's size. color: brightness, contrast and, with three
    channels, saturation; of the picture only.
    """

    def __init__(self, names: Sequence[str], *, seed: int) -> None:
        self._names = tuple(names)
        self._seed = seed

    def __call__(
        self, picture: Tensor, mask: Tensor | None = None, *, epoch: int, index: int
    ) -> tuple[Tensor, Tensor | None]:
        """Changes one picture (channels, height, width), uint8 or floats of 0…1, and its mask (1, height, width)."""
        indices = torch.tensor([index], device=picture.device)
        pictures, masks = self.batch(picture[None], None if mask is None else mask[None], epoch=epoch, indices=indices)
        return pictures[0], None if masks is None else masks[0]

    def batch(
        self, pictures: Tensor, masks: Tensor | None = None, *, epoch: int, indices: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Changes many pictures (samples, …), each as if alone; `indices` are on the same device. Keeps the dtypes."""
        if not self._names:
            return pictures, masks
        draws = uniform(self._seed, epoch, indices, count=DRAWS * len(self._names))
        whole = pictures.dtype == torch.uint8 and not _EXACT.issuperset(self._names)
        images = pictures.float() / 255 if whole else pictures
        for name, chances in zip(self._names, draws.split(DRAWS, dim=1), strict=True):
            if name == "color":
                images = _color(images, chances)
                continue
            images = _move(name, images, chances, mode="bilinear")
            masks = None if masks is None else _move(name, masks, chances, mode="nearest")
        return (images * 255).round().byte() if whole else images, masks


def uniform(seed: int, epoch: int, indices: Tensor, *, count: int) -> Tensor:
    """Returns `count` random numbers in [0, 1) for each of the `indices`: float32 (indices, count), on their device.

    They come from SplitMix64 (Steele et al., 2014), seeded by the seed, the epoch and the index. So there is no
    generator state to save, and every device computes the same numbers.
    """
    starts = _finalized(indices.long() + _signed((seed << 20 | epoch) * _GOLDEN))
    steps = torch.arange(1, count + 1, device=indices.device) * _signed(_GOLDEN)
    return _shifted_right(_finalized(starts[:, None] + steps), 40).float() / 2**24


def _move(name: str, pictures: Tensor, chances: Tensor, *, mode: str) -> Tensor:
    if name == "hflip":
        return _choose(chances[:, 0] < 0.5, pictures.flip(-1), pictures)
    if name == "vflip":
        return _choose(chances[:, 0] < 0.5, pictures.flip(-2), pictures)
    if name == "rotate90":
        return _rotated(pictures, chances)
    if name == "crop":
        return _cropped(pictures, chances, mode=mode)
    raise ValueError(f"there is no augmentation {name!r}")


def _rotated(pictures: Tensor, chances: Tensor) -> Tensor:
    square = pictures.shape[-1] == pictures.shape[-2]
    turns = (1, 2, 3) if square else (2,)
    chosen = (chances[:, 0] * (len(turns) + 1)).int()
    rotated = pictures
    for number, turn in enumerate(turns, start=1):
        rotated = _choose(chosen == number, pictures.rot90(turn, (-2, -1)), rotated)
    return rotated


def _cropped(pictures: Tensor, chances: Tensor, *, mode: str) -> Tensor:
    """Crops by scale and center in the coordinates of `grid_sample`, -1 to 1."""
    area = AREA[0] + (AREA[1] - AREA[0]) * chances[:, 0]
    ratio = torch.exp(_RATIO_LOG[0] + (_RATIO_LOG[1] - _RATIO_LOG[0]) * chances[:, 1])
    wide, tall = (area * ratio).sqrt().clamp(max=1), (area / ratio).sqrt().clamp(max=1)
    right, down = ((2 * chances[:, 2:4] - 1) * (1 - torch.stack([wide, tall], dim=1))).unbind(dim=1)
    zero = torch.zeros_like(wide)
    boxes = torch.stack([wide, zero, right, zero, tall, down], dim=1).reshape(-1, 2, 3)
    grid = functional.affine_grid(boxes, list(pictures.shape), align_corners=False)
    values = pictures if pictures.is_floating_point() else pictures.float()
    cropped = functional.grid_sample(
        values, grid.to(values.dtype), mode=mode, padding_mode="border", align_corners=False
    )
    return cropped.to(pictures.dtype)


def _color(pictures: Tensor, chances: Tensor) -> Tensor:
    factors = 1 + JITTER * (2 * chances.to(pictures.dtype) - 1)
    brightness, contrast, saturation, _ = factors[:, :, None, None, None].unbind(dim=1)
    pictures = pictures * brightness
    grey = _grey(pictures)
    middle = grey.mean(dim=(1, 2, 3), keepdim=True)
    pictures = middle + (pictures - middle) * contrast
    if pictures.shape[1] == 3:
        grey = _grey(pictures)
        pictures = grey + (pictures - grey) * saturation
    return pictures.clamp(0, 1)


def _grey(pictures: Tensor) -> Tensor:
    if pictures.shape[1] != 3:
        return pictures.mean(dim=1, keepdim=True)
    red, green, blue = pictures.split(1, dim=1)
    return GREY[0] * red + GREY[1] * green + GREY[2] * blue


def _choose(chosen: Tensor, changed: Tensor, kept: Tensor) -> Tensor:
    return torch.where(chosen[:, None, None, None], changed, kept)


def _finalized(values: Tensor) -> Tensor:
    """Applies SplitMix64's finalizer to int64, whose products overflow as those of uint64 do."""
    values = (values ^ _shifted_right(values, 30)) * _signed(0xBF58476D1CE4E5B9)
    values = (values ^ _shifted_right(values, 27)) * _signed(0x94D049BB133111EB)
    return values ^ _shifted_right(values, 31)


def _shifted_right(values: Tensor, bits: int) -> Tensor:
    """Shifts right without copying the sign bit, as for unsigned numbers."""
    return (values >> bits) & (2 ** (64 - bits) - 1)


def _signed(value: int) -> int:
    value %= 2**64
    return value - 2**64 if value >= 2**63 else value
