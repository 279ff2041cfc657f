"""The recipe `segmentation`: a U-Net that marks the pixels of one class."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from torchyard.errors import DataError
from torchyard.publishing import Content
from torchyard.recipes import Normalization, Segmentation
from trainer.data.augment import Augment
from trainer.data.decoding import loaders
from trainer.data.images import Normalizer, measure
from trainer.data.loading import sent
from trainer.data.pairs import PairData, Pairs, load_pairs
from trainer.data.sources import local_path
from trainer.models import unet
from trainer.models.initial import freeze, initialize
from trainer.models.weights import file_state, fill, torchvision_state
from trainer.recipes import measuring
from trainer.recipes.overlays import overlays
from trainer.recipes.pixels import PixelLoss, PixelTally, logit
from trainer.sampler import evaluation_shares
from trainer.task import Batch, Evaluation
from trainer.world import World

CHANNELS = 3
ENCODER = "encoder."
"""What the names of the encoder's parameters begin with."""

SHOWN = 4
"""Validation pictures that each evaluation shows."""


@dataclass(frozen=True)
class Segmenter:
    """A model with its data, on its device."""

    config: Segmentation
    model: nn.Module
    data: PairData
    normalization: Normalization
    pos_weight: float
    device: torch.device
    memory_format: torch.memory_format
    workers: int
    normalize: Normalizer
    pixel_loss: PixelLoss
    files: Mapping[str, Content] = field(default_factory=dict[str, Content])

    @property
    def facts(self) -> dict[str, Any]:
        side = self.config.data.image_size
        return {
            "classes": ["background", "foreground"],
            "normalization": self.normalization.model_dump(),
            "input": {"channels": CHANNELS, "height": side, "width": side},
            "pos_weight": self.pos_weight,
            "mask_threshold": self.config.data.mask_threshold,
            "threshold": self.config.evaluation.threshold,
        }

    @property
    def description(self) -> str:
        side = self.config.data.image_size
        counts = f"{len(self.data.train)} training and {len(self.data.val)} validation pictures"
        return f"{counts} of {CHANNELS}×{side}×{side} with masks, a positive pixel weighs {self.pos_weight:.4g}"

    @property
    def samples(self) -> int:
        return len(self.data.train)

    @property
    def data_hash(self) -> str:
        return self.data.data_hash

    @property
    def split_hash(self) -> str:
        return self.data.split_hash

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.pixel_loss(outputs, targets).mean()

    def training_batches(self, plan: Sequence[Tensor], *, epoch: int) -> Iterator[Batch]:
        if not plan:
            return
        augment = Augment(self.config.data.augment, seed=self.config.training.seed)
        # All indices go to the device at once, as each copy would wait for it.
        indices = sent(torch.cat(list(plan)), self.device).split([len(item) for item in plan])
        pairs = self.data.train.batches(plan, device=self.device, workers=self.workers)
        for chosen, (pictures, masks) in zip(indices, pairs, strict=True):
            yield self._batch(*augment.batch(pictures, masks, epoch=epoch, indices=chosen))

    def evaluate(self, world: World | None, *, on_batch: Callable[[], None] = lambda: None) -> Evaluation:
        """val/loss, val/iou, val/dice, val/precision and val/recall, and overlays of a few pictures, always the same.

        A collective, if there is a world.
        """
        rank, size = (world.rank, world.size) if world else (0, 1)
        files = self._overlays(drawn=rank == 0, on_batch=on_batch)
        batch_size = self.config.training.per_device_batch_size
        shares = evaluation_shares(len(self.data.val), batch_size=batch_size, rank=rank, world_size=size)
        tally = PixelTally(self.pixel_loss, threshold=self.config.evaluation.threshold, device=self.device)
        batches = self._val_batches([share.indices for share in shares])
        measuring.measure(self.model, batches, shares, tally=tally, world=world, on_batch=on_batch)
        return Evaluation(tally.metrics(), files)

    def example(self) -> Tensor:
        return self.largest(1).inputs

    def largest(self, count: int) -> Batch:
        side = self.config.data.image_size
        pictures = torch.zeros(count, CHANNELS, side, side, dtype=torch.uint8, device=self.device)
        return self._batch(pictures, pictures[:, :1])

    def _overlays(self, *, drawn: bool, on_batch: Callable[[], None]) -> dict[str, Content]:
        """Leaves the model in evaluation mode. Empty if not `drawn`: all ranks call the model, and one draws."""
        pairs = self.data.val
        shown = min(len(pairs), SHOWN)
        indices = torch.arange(shown) * len(pairs) // shown
        ((pictures, masks),) = pairs.batches([indices], device=self.device, workers=0)
        self.model.eval()
        with torch.no_grad():
            logits = self.model(self._batch(pictures, masks).inputs)
        on_batch()
        if not drawn:
            return {}
        names = [Path(pairs.pairs[index].name).name for index in indices.tolist()]
        return overlays(names, pictures, masks, logits > logit(self.config.evaluation.threshold))

    def _val_batches(self, plan: Sequence[Tensor]) -> Iterator[Batch]:
        for pictures, masks in self.data.val.batches(plan, device=self.device, workers=self.workers):
            yield self._batch(pictures, masks)

    def _batch(self, pictures: Tensor, masks: Tensor | None) -> Batch:
        return Batch(self.normalize(pictures).contiguous(memory_format=self.memory_format), masks)


def make_segmentation(
    config: Segmentation,
    *,
    source: str,
    weights: str,
    device: torch.device,
    local_size: int = 1,
    facts: Mapping[str, Any] | None = None,
) -> Segmenter:
    """Loads the data from `source` (a path, or a `file://` URL) and builds the model.

    `weights`: `none`, the name of torchvision weights, a path or a `file://` URL. `local_size`: ranks on this host.
    `facts`: those of a checkpoint, whose weights the caller loads: nothing is measured or downloaded then. Raises
    DataError and ConfigError.
    """
    data = load_pairs(local_path(source), config.data)
    workers = loaders(config.data.workers, local_size=local_size)
    if facts is None:
        normalization = _normalization(config.data.normalize, data.train, workers=workers)
        pos_weight = _pos_weight(config, data.train, source=source, workers=workers)
    else:
        normalization = Normalization.model_validate(facts["normalization"])
        pos_weight = float(facts["pos_weight"])
    model = unet.build(config.model.name)
    if facts is None:
        initialize(model, _fill(model, config.model.name, weights), config.model.init)
    freeze(model, config.model.freeze)
    channels_last = device.type == "cuda" if config.training.channels_last == "auto" else config.training.channels_last
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    return Segmenter(
        config=config,
        model=model.to(device=device, memory_format=memory_format),  # pyright: ignore[reportCallIssue] it is no overload
        data=data,
        normalization=normalization,
        normalize=Normalizer(normalization, channels=CHANNELS, device=device),
        pos_weight=pos_weight,
        pixel_loss=PixelLoss(pos_weight=pos_weight, dice=config.loss.dice, device=device),
        device=device,
        memory_format=memory_format,
        workers=workers,
    )


def _normalization(
    wanted: Literal["auto", "none", "imagenet"] | Normalization, pairs: Pairs, *, workers: int
) -> Normalization:
    if wanted == "none":
        return Normalization(mean=[0.0], std=[1.0])
    if wanted == "imagenet":
        return Normalization(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
    if wanted != "auto":
        return wanted
    measured = measure(pairs, in_memory=False, workers=workers)
    if measured is None:
        raise AssertionError("bytes are finite")
    return measured


def _pos_weight(config: Segmentation, pairs: Pairs, *, source: str, workers: int) -> float:
    wanted = config.loss.pos_weight
    if wanted != "auto":
        return wanted
    share = pairs.positive_share(workers=workers)
    if 0 < share < 1:
        return (1 - share) / share
    which = "no pixel" if share == 0 else "every pixel"
    raise DataError(
        f"{source}: {which} of the training masks at {config.data.image_size}×{config.data.image_size} is above "
        f"data.mask_threshold, {config.data.mask_threshold:g} of full scale (0 suits masks of 0 and 1): there is "
        "nothing to learn"
    )


def _fill(model: unet.UNet | unet.UNet16, name: str, weights: str) -> Collection[str]:
    """The names of the parameters that stay new."""
    names = [parameter for parameter, _ in model.named_parameters()]
    if weights == "none":
        return names
    if not weights.startswith(("/", "file://")):
        tensors = torchvision_state(unet.ENCODERS.get(name, name), weights)
    else:
        tensors = file_state(weights)
        if any(key.startswith(ENCODER) for key in tensors):
            return fill(model, tensors, what=weights)
    new = fill(model.encoder, tensors, what=weights)
    return [name for name in names if not name.startswith(ENCODER) or name.removeprefix(ENCODER) in new]
