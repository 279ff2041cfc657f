"""The recipe `segmentation`: a U-Net that marks the pixels of one class, or the class of each pixel."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
import logging
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchyard.contract.recipes import Normalization, Segmentation
from torchyard.models import unet
from torchyard.models.normalization import Normalizer
from torchyard.models.placement import memory_format
from torchyard.models.vision import is_published
from torchyard.run import Run
from trainer.data.augment import Augment
from trainer.data.batch import Batch
from trainer.data.brightness import expect_spread
from trainer.data.images import choose_normalization
from trainer.data.loading import loader_count, to_device
from trainer.data.pairs import PairData, load_pairs
from trainer.data.scanning import ALONE, Scan
from trainer.data.sources import local_path
from trainer.recipes.base import RecipeTask
from trainer.recipes.batchofone import expect_more_than_one
from trainer.recipes.marking import Marking, make_marking, outputs
from trainer.recipes.mistakes import show_confusion
from trainer.task import Evaluation
from trainer.weights.files import file_state, fill, torchvision_state
from trainer.weights.home import placed
from trainer.weights.initial import freeze, initialize
from trainer.weights.telling import head, note_new
from trainer.world import World

logger = logging.getLogger(__name__)

CHANNELS = 3
ENCODER = "encoder."
"""The prefix of the names of the encoder's parameters."""

SHOWN = 4
"""Validation pictures that each evaluation shows with their masks."""


@dataclass(frozen=True)
class Samples:
    """Pictures (samples, 3, height, width) with their masks and the model's, which are (samples, 1, height, width)."""

    names: list[str]
    pictures: Tensor
    truth: Tensor
    predicted: Tensor


@dataclass(frozen=True, kw_only=True)
class Segmenter(RecipeTask):
    """A U-Net with its data."""

    config: Segmentation
    data: PairData
    normalization: Normalization
    marking: Marking
    memory_format: torch.memory_format
    workers: int
    normalizer: Normalizer

    @property
    def metadata(self) -> dict[str, Any]:
        """What a checkpoint needs besides the weights: normalization, input shape, classes, thresholds."""
        side = self.config.data.image_size
        return {
            **self.marking.metadata,
            "normalization": self.normalization.model_dump(),
            "input": {"channels": CHANNELS, "height": side, "width": side},
        }

    @property
    def description(self) -> str:
        side = self.config.data.image_size
        counts = f"{len(self.data.train)} training and {len(self.data.val)} validation pictures"
        return f"{counts} of {CHANNELS}×{side}×{side} with masks, {self.marking.description}"

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Returns the mean loss over the pictures; `outputs` are logits, `targets` masks."""
        return self.marking.loss(outputs, targets).mean()

    def training_batches(self, plan: Sequence[Tensor], *, epoch: int) -> Iterator[Batch]:
        """Yields pictures and masks that are augmented together on the device. Raises DataError."""
        if not plan:
            return
        augment = Augment(self.config.data.augment, seed=self.config.training.seed)
        # One copy of all indices: every copy waits for the device.
        indices = to_device(torch.cat(list(plan)), self.device).split([len(item) for item in plan])
        pairs = self.data.train.batches(plan, device=self.device, workers=self.workers)
        for chosen, (pictures, masks) in zip(indices, pairs, strict=True):
            yield self._batch(*augment.batch(pictures, masks, epoch=epoch, indices=chosen))

    def validation_batches(self, plan: Sequence[Tensor]) -> Iterator[Batch]:
        pairs = self.data.val.batches(plan, device=self.device, workers=self.workers)
        return (self._batch(*pair) for pair in pairs)

    def evaluate(
        self, world: World | None, *, on_batch: Callable[[], None] = lambda: None, batch_size: int | None = None
    ) -> Evaluation:
        """Measures the loss and the metrics of pixels, and marks a few validation pictures to show.

        A collective if there is a world.
        """
        batch_size = batch_size or self.config.training.per_device_batch_size
        samples = self._samples(batch_size, kept=world is None or world.rank == 0, on_batch=on_batch)
        tally = self.marking.tally()
        self.measure(tally, world, on_batch=on_batch, batch_size=batch_size)
        show = partial(self._show, samples, tally.matrix)
        return Evaluation(tally.metrics(), files=tally.files(), samples=tally.samples, show=show)

    def largest_batch(self, count: int) -> Batch:
        """Returns blank pictures: all pictures have the same size."""
        side = self.config.data.image_size
        pictures = torch.zeros(count, CHANNELS, side, side, dtype=torch.uint8, device=self.device)
        return self._batch(pictures, pictures[:, :1])

    def _samples(self, batch_size: int, *, kept: bool, on_batch: Callable[[], None]) -> Samples | None:
        """Returns the same pictures every time, with their masks and the model's; None unless `kept`.

        All ranks call the model equally often, but only one shows. Leaves the model in evaluation mode.
        """
        pairs = self.data.val
        shown = min(len(pairs), SHOWN)
        indices = torch.arange(shown) * len(pairs) // shown
        plan = list(indices.split(batch_size))
        marked: list[tuple[Tensor, Tensor, Tensor]] = []
        self.model.eval()
        with torch.no_grad():
            for pictures, masks in pairs.batches(plan, device=self.device, workers=0):
                outputs = self.model(self._batch(pictures, masks).inputs)
                marked.append((pictures, masks, self.marking.masks(outputs)))
                on_batch()
        names = [Path(pairs.pairs[index].name).name for index in indices.tolist()]
        return Samples(names, *(torch.cat(parts) for parts in zip(*marked, strict=True))) if kept else None

    def _show(self, samples: Samples | None, matrix: Tensor | None, run: Run, step: int) -> None:
        classes = self.marking.metadata["classes"]
        show_confusion(run, matrix, classes=classes, step=step)
        if samples is not None:
            run.log_image(
                "overlays",
                list(samples.pictures),
                step=step,
                caption=samples.names,
                truth=list(samples.truth[:, 0]),
                predicted=list(samples.predicted[:, 0]),
                classes=classes,
            )

    def _batch(self, pictures: Tensor, masks: Tensor | None) -> Batch:
        return Batch(self.normalizer(pictures).contiguous(memory_format=self.memory_format), masks)


def make_task(
    config: Segmentation,
    *,
    source: str,
    weights: str = "none",
    device: torch.device,
    local_size: int = 1,
    metadata: Mapping[str, Any] | None = None,
    scan: Scan = ALONE,
) -> Segmenter:
    """Loads the data from `source` and builds the model. See `trainer.recipes.make_task` for the arguments.

    `source`: a path or a `file://` URL. `weights`: `none`, the name of torchvision weights, a path or a `file://` URL;
    ignored with `metadata`. Raises DataError and ConfigError.
    """
    data = load_pairs(local_path(source), config.data, scan=scan)
    batches = -(-len(data.train) // config.training.per_device_batch_size)
    workers = loader_count(config.data.workers, local_size=local_size, batches=batches)
    if metadata is None:
        expect_spread(data.train, source)
        normalization = choose_normalization(config.data.normalize, data.train, in_memory=False, workers=workers)
    else:
        normalization = Normalization.model_validate(metadata["normalization"])
    marking = make_marking(config, data.train, source=source, workers=workers, device=device, metadata=metadata)
    if metadata is None and data.train.are_of_one_class():
        scan.note([f"{source}: no training mask has a second class: see data.mask_threshold, or data.classes"])
    model = unet.build(config.model.name, outputs=outputs(config))
    if metadata is None:
        initialize(model, _fill(model, config.model.name, weights, scan), config.model.init)
        side = config.data.image_size
        expect_more_than_one(model, (CHANNELS, side, side), config, samples=len(data.train), scan=scan)
    freeze(model, config.model.freeze)
    return Segmenter(
        config=config,
        model=placed(model, config, device),
        data=data,
        normalization=normalization,
        normalizer=Normalizer(normalization, channels=CHANNELS, device=device),
        marking=marking,
        score=marking.score,
        device=device,
        memory_format=memory_format(config, device),
        workers=workers,
    )


def _fill(model: unet.UNet | unet.UNet16, name: str, weights: str, scan: Scan) -> frozenset[str]:
    """Fills the model, or its encoder alone, with `weights`. Returns the names of the other parameters."""
    names = frozenset(parameter for parameter, _ in model.named_parameters())
    if weights == "none":
        return names
    tensors = (
        torchvision_state(unet.ENCODERS.get(name, name), weights) if is_published(weights) else file_state(weights)
    )
    if any(key.startswith(ENCODER) for key in tensors):
        new = fill(model, tensors, what=weights)
        expected = head(model, classes=model.head.out_channels)
    else:
        filled = frozenset(dict(model.encoder.named_parameters())) - fill(model.encoder, tensors, what=weights)
        new = names - {f"{ENCODER}{parameter}" for parameter in filled}
        expected = {parameter for parameter in names if not parameter.startswith(ENCODER)}
    note_new(scan, model, new, what=weights, expected=expected)
    logger.info("model.weights: %s; new: %s", weights, ", ".join(sorted(new)) or "nothing")
    return new
