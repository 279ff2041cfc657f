"""The recipe `segmentation`: a U-Net that marks the pixels of one class."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
import logging
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchyard.contract.errors import DataError
from torchyard.contract.recipes import Normalization, Segmentation, SegmentationDataConfig
from torchyard.run.publishing import Content
from trainer.data.augment import Augment
from trainer.data.images import IMAGENET, Normalizer, measure
from trainer.data.loading import loaders, sent
from trainer.data.pairs import PairData, Pairs, load_pairs
from trainer.data.sources import local_path
from trainer.models import unet
from trainer.models.home import home
from trainer.models.initial import freeze, initialize
from trainer.models.weights import file_state, fill, is_published, torchvision_state
from trainer.recipes.measuring import measure as measure_model
from trainer.recipes.overlays import overlays
from trainer.recipes.pixels import PixelLoss, PixelTally, logit
from trainer.sampler import evaluation_shares
from trainer.task import Batch, Evaluation
from trainer.world import World

logger = logging.getLogger(__name__)

CHANNELS = 3
ENCODER = "encoder."
"""What the names of the encoder's parameters begin with."""

SHOWN = 4
"""Validation pictures that each evaluation shows."""


@dataclass(frozen=True)
class Segmenter:
    """A model with its data, on its device: a `trainer.task.Task`."""

    config: Segmentation
    model: nn.Module
    data: PairData
    normalization: Normalization
    pos_weight: float
    device: torch.device
    memory_format: torch.memory_format
    workers: int
    normalizer: Normalizer
    pixel_loss: PixelLoss

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
    def files(self) -> Mapping[str, Content]:
        """None: the weights and the facts are enough."""
        return {}

    @property
    def description(self) -> str:
        side = self.config.data.image_size
        counts = f"{len(self.data.train)} training and {len(self.data.val)} validation pictures"
        return f"{counts} of {CHANNELS}×{side}×{side} with masks, a positive pixel weighs {self.pos_weight:.4g}"

    @property
    def samples(self) -> int:
        """In the training split."""
        return len(self.data.train)

    @property
    def data_hash(self) -> str:
        return self.data.data_hash

    @property
    def split_hash(self) -> str:
        return self.data.split_hash

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean over pictures, of logits and masks of 0 and 1."""
        return self.pixel_loss(outputs, targets).mean()

    def training_batches(self, plan: Sequence[Tensor], *, epoch: int) -> Iterator[Batch]:
        """Pictures and masks, augmented together on the device. Raises DataError."""
        if not plan:
            return
        augment = Augment(self.config.data.augment, seed=self.config.training.seed)
        # All indices go to the device at once, as each copy would wait for it.
        indices = sent(torch.cat(list(plan)), self.device).split([len(item) for item in plan])
        pairs = self.data.train.batches(plan, device=self.device, workers=self.workers)
        for chosen, (pictures, masks) in zip(indices, pairs, strict=True):
            yield self._batch(*augment.batch(pictures, masks, epoch=epoch, indices=chosen))

    def evaluate(
        self, world: World | None, *, on_batch: Callable[[], None] = lambda: None, batch_size: int | None = None
    ) -> Evaluation:
        """Loss, IoU, Dice, precision and recall over the validation split, and overlays of a few of its pictures.

        A collective, if there is a world.
        """
        rank, size = (world.rank, world.size) if world else (0, 1)
        batch_size = batch_size or self.config.training.per_device_batch_size
        files = self._overlays(batch_size, drawn=rank == 0, on_batch=on_batch)
        shares = evaluation_shares(len(self.data.val), batch_size=batch_size, world_size=size, rank=rank)
        plan = [share.indices for share in shares]
        pairs = self.data.val.batches(plan, device=self.device, workers=self.workers)
        tally = PixelTally(self.pixel_loss, threshold=self.config.evaluation.threshold, device=self.device)
        batches = (self._batch(*pair) for pair in pairs)
        measure_model(self.model, batches, shares, tally=tally, world=world, on_batch=on_batch)
        return Evaluation(tally.metrics(), files=files, samples=tally.samples)

    def example(self) -> Tensor:
        return self.largest(1).inputs

    def largest(self, count: int) -> Batch:
        """Pictures all have one size, so these are blank."""
        side = self.config.data.image_size
        pictures = torch.zeros(count, CHANNELS, side, side, dtype=torch.uint8, device=self.device)
        return self._batch(pictures, pictures[:, :1])

    def _overlays(self, batch_size: int, *, drawn: bool, on_batch: Callable[[], None]) -> dict[str, Content]:
        """Of the same pictures every time. Empty if not `drawn`: all ranks call the model, equally often, one draws.

        Leaves the model in evaluation mode.
        """
        pairs = self.data.val
        shown = min(len(pairs), SHOWN)
        indices = torch.arange(shown) * len(pairs) // shown
        plan = list(indices.split(batch_size))
        cut = logit(self.config.evaluation.threshold)
        drawings: list[tuple[Tensor, Tensor, Tensor]] = []
        self.model.eval()
        with torch.no_grad():
            for pictures, masks in pairs.batches(plan, device=self.device, workers=0):
                drawings.append((pictures, masks, self.model(self._batch(pictures, masks).inputs) > cut))
                on_batch()
        names = [Path(pairs.pairs[index].name).name for index in indices.tolist()]
        return overlays(names, *(torch.cat(parts) for parts in zip(*drawings, strict=True))) if drawn else {}

    def _batch(self, pictures: Tensor, masks: Tensor | None) -> Batch:
        return Batch(self.normalizer(pictures).contiguous(memory_format=self.memory_format), masks)


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
        normalization = _normalization(config.data, data.train, workers=workers)
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
        model=model.to(device=home(config.distributed, device), memory_format=memory_format),  # pyright: ignore[reportCallIssue] it is no overload
        data=data,
        normalization=normalization,
        normalizer=Normalizer(normalization, channels=CHANNELS, device=device),
        pos_weight=pos_weight,
        pixel_loss=PixelLoss(pos_weight=pos_weight, dice=config.loss.dice, device=device),
        device=device,
        memory_format=memory_format,
        workers=workers,
    )


def _normalization(config: SegmentationDataConfig, pairs: Pairs, *, workers: int) -> Normalization:
    if config.normalize == "auto":
        measured = measure(pairs, in_memory=False, workers=workers)
        assert measured is not None, "bytes are finite"
        return measured
    if config.normalize == "none":
        return Normalization(mean=[0.0], std=[1.0])
    return IMAGENET if config.normalize == "imagenet" else config.normalize


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


def _fill(model: unet.UNet | unet.UNet16, name: str, weights: str) -> frozenset[str]:
    """The names of the parameters that stay new. A file may hold the whole model, or its encoder alone."""
    names = frozenset(parameter for parameter, _ in model.named_parameters())
    if weights == "none":
        return names
    tensors = (
        torchvision_state(unet.ENCODERS.get(name, name), weights) if is_published(weights) else file_state(weights)
    )
    if any(key.startswith(ENCODER) for key in tensors):
        new = fill(model, tensors, what=weights)
    else:
        filled = frozenset(dict(model.encoder.named_parameters())) - fill(model.encoder, tensors, what=weights)
        new = names - {f"{ENCODER}{parameter}" for parameter in filled}
    logger.info("model.weights: %s; new: %s", weights, ", ".join(sorted(new)) or "nothing")
    return new
