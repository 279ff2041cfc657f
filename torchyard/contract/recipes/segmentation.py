"""The configuration of `segmentation`."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from torchyard.contract.recipes.entry import RecipeEntry
from torchyard.contract.recipes.pictures import (
    MOST_AUGMENTATIONS,
    Augmentation,
    Cache,
    ClassWeights,
    Normalization,
    PictureModelConfig,
    Resize,
    Workers,
)
from torchyard.contract.recipes.training import DataConfig, OptimizerConfig, Recipe, Seed, TrainingConfig
from torchyard.contract.wire.schema import BundleOrFile, MetricKey, Schema


class SegmentationModelConfig(PictureModelConfig):
    name: Literal["unet_small", "unet_vgg16", "unet_resnet34", "unet_resnet101"] = Field(
        default="unet_small",
        description="a U-Net: a small one for CPUs, or one with a torchvision encoder. `weights` fills the encoder; a "
        "file may hold the whole U-Net",
    )

    @model_validator(mode="after")
    def _weights_are_published(self) -> Self:
        if self.name == "unet_small" and self.weights != "none" and not self.weights.startswith("file:///"):
            raise ValueError(f"unet_small has no published weights {self.weights}: use none or a file:// URL")
        return self


Colour = Annotated[list[Annotated[int, Field(ge=0, le=255)]], Field(min_length=3, max_length=3)]


class SegmentationDataConfig(DataConfig):
    source: BundleOrFile = Field(
        description="`bundle:sha256:…`, or `file:///…` inside an allowed folder: images/ and masks/, paired by file"
        " stem; or train/ and val/ with both in each; or shards of such a folder"
    )
    val_fraction: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.15, description="fraction for validation, if the source has no validation split"
    )
    split_seed: Seed = Field(default=0, description="seed of that split")
    image_size: Annotated[int, Field(ge=32, le=2048, multiple_of=32)] = Field(
        default=224, description="width and height in pixels, a multiple of 32"
    )
    resize: Resize = Field(
        default="squash",
        description="how to resize pictures and masks: `squash` changes the aspect ratio; `crop` keeps it and cuts "
        "the longer side",
    )
    mask_threshold: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.5, description="a mask's pixel above this share of full scale is positive"
    )
    classes: Annotated[list[MetricKey], Field(min_length=2, max_length=255)] | None = Field(
        default=None,
        description="names of the classes, the background first; mask values are class numbers from 0. null: one "
        "class, by `mask_threshold`",
    )
    palette: Annotated[list[Colour], Field(max_length=255)] | None = Field(
        default=None,
        description="the colour `[red, green, blue]` of each class, for masks in colours and for overlays",
    )
    ignore_index: Annotated[int, Field(ge=0, le=255)] = Field(
        default=255, description="with `classes`: mask value of pixels to leave out of the loss and the metrics"
    )
    normalize: Literal["auto", "none", "imagenet"] | Normalization = Field(
        default="imagenet",
        description="mean and standard deviation: `imagenet`: of ImageNet; `auto`: of the training images",
    )
    augment: list[Augmentation] = Field(
        default=["hflip", "vflip"],
        max_length=MOST_AUGMENTATIONS,
        description="random augmentations of pictures and masks together, in this order",
    )
    workers: Workers = Field(default="auto", description="data loader processes per rank")
    cache: Cache = "auto"

    @model_validator(mode="after")
    def _classes_are_told_apart(self) -> Self:
        if self.classes is None:
            if self.palette is not None:
                raise ValueError("palette has the colours of classes: give classes, too")
            return self
        if len(set(self.classes)) < len(self.classes):
            raise ValueError("two of the classes have the same name")
        if self.mask_threshold != SegmentationDataConfig.model_fields["mask_threshold"].default:
            raise ValueError("mask_threshold is for masks of one class: leave it out, as classes is given")
        colours = None if self.palette is None else [len(self.palette), len(set(map(tuple, self.palette)))]
        if colours is not None and colours != [len(self.classes)] * 2:
            raise ValueError(f"palette needs {len(self.classes)} different colours, one for each of the classes")
        return self

    @model_validator(mode="after")
    def _channels_of_colours(self) -> Self:
        if isinstance(self.normalize, Normalization) and len(self.normalize.mean) not in {1, 3}:
            raise ValueError("normalize needs 1 channel or 3: all pictures become RGB")
        return self


class SegmentationLoss(Schema):
    name: Literal["auto", "bce", "cross_entropy"] = Field(
        default="auto",
        description="loss, as a mean over the pixels. `bce`: binary cross-entropy with logits, for one class; "
        "`cross_entropy`: for several `data.classes`; `auto`: chosen by the number of classes",
    )
    pos_weight: Annotated[float, Field(gt=0, le=1e6)] | Literal["auto"] = Field(
        default="auto",
        description="one class: weight of positive pixels; `auto`: the ratio of negative to positive pixels in the "
        "training masks",
    )
    class_weights: ClassWeights = Field(
        default="none",
        description="several classes: weight of each class, or `auto`: pixels of the training masks / (number of "
        "classes × pixels of the class)",
    )
    dice: Annotated[float, Field(ge=0, le=100)] = Field(
        default=0.0,
        description="weight of the soft Dice loss, added to the cross-entropy; for several classes, the mean over "
        "the classes",
    )


class SegmentationTrainingConfig(TrainingConfig):
    epochs: Annotated[int, Field(ge=1, le=1_000_000)] = Field(default=20, description="passes over the training data")
    per_device_batch_size: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=8, description="samples of a micro-batch on each rank"
    )


class SegmentationOptimizerConfig(OptimizerConfig):
    lr: Annotated[float, Field(gt=0, le=1000)] = Field(
        default=0.001, description="learning rate after the warm-up; see lr_scaling"
    )


class Segmentation(Recipe):
    """Segments one class, such as cracks, or several classes, with a U-Net. Data: folders of pictures and masks."""

    model: SegmentationModelConfig = SegmentationModelConfig()  # pyright: ignore[reportIncompatibleVariableOverride] it is frozen
    data: SegmentationDataConfig  # pyright: ignore[reportIncompatibleVariableOverride] it is frozen
    loss: SegmentationLoss = SegmentationLoss()
    training: SegmentationTrainingConfig = SegmentationTrainingConfig()  # pyright: ignore[reportIncompatibleVariableOverride] it is frozen
    optimizer: SegmentationOptimizerConfig = SegmentationOptimizerConfig()  # pyright: ignore[reportIncompatibleVariableOverride] it is frozen

    @property
    def unmeasured(self) -> frozenset[str]:
        return _OF_SEVERAL if self.data.classes is None else _OF_ONE

    @model_validator(mode="after")
    def _loss_fits_the_classes(self) -> Self:
        loss, classes = self.loss, self.data.classes
        if classes is None:
            if loss.name == "cross_entropy" or loss.class_weights != "none":
                raise ValueError(
                    "loss cross_entropy and class_weights are of several classes: name them in data.classes"
                )
            return self
        if loss.name == "bce" or loss.pos_weight != "auto":
            raise ValueError("loss bce and pos_weight are of one class: leave them out, as data.classes is given")
        if isinstance(loss.class_weights, list) and len(loss.class_weights) != len(classes):
            raise ValueError(
                f"loss.class_weights has {len(loss.class_weights)} numbers for {len(classes)} data.classes"
            )
        return self


_OF_ONE = frozenset({"val/precision", "val/recall"})
_OF_SEVERAL = frozenset({"val/accuracy"})

RECIPE = RecipeEntry(
    name="segmentation",
    config=Segmentation,
    measures=frozenset({"train/iou", "val/iou", "val/dice"}) | _OF_ONE | _OF_SEVERAL,
)
