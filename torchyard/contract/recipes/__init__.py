"""The built-in trainers' configuration. The API validates with these schemas and the trainer obeys them.

Every key has a default; a key whose other values no trainer obeys yet accepts only that default.
"""

from typing import TypeAlias

from torchyard.contract.recipes.classification import ClassificationLoss, ImageClassification
from torchyard.contract.recipes.pictures import ImageDataConfig, ImageModelConfig, Normalization
from torchyard.contract.recipes.script import Script
from torchyard.contract.recipes.segmentation import Segmentation, SegmentationDataConfig, SegmentationLoss
from torchyard.contract.recipes.text import TextClassification, TextDataConfig, TextLoss, TextModelConfig
from torchyard.contract.recipes.training import (
    DistributedConfig,
    EarlyStoppingConfig,
    EmaConfig,
    EvaluationConfig,
    LoggingConfig,
    LookaheadConfig,
    OptimizerConfig,
    Recipe,
    SchedulerConfig,
    TrainingConfig,
)

__all__ = [
    "METRICS",
    "AnyRecipe",
    "ClassificationLoss",
    "DistributedConfig",
    "EarlyStoppingConfig",
    "EmaConfig",
    "EvaluationConfig",
    "ImageClassification",
    "ImageDataConfig",
    "ImageModelConfig",
    "LoggingConfig",
    "LookaheadConfig",
    "Normalization",
    "OptimizerConfig",
    "Recipe",
    "SchedulerConfig",
    "Script",
    "Segmentation",
    "SegmentationDataConfig",
    "SegmentationLoss",
    "TextClassification",
    "TextDataConfig",
    "TextLoss",
    "TextModelConfig",
    "TrainingConfig",
]

AnyRecipe: TypeAlias = ImageClassification | Segmentation | TextClassification

_ALWAYS = {"train/loss", "train/grad_norm", "train/lr", "train/samples_per_second", "val/loss"}

METRICS: dict[str, frozenset[str]] = {
    "image-classification": frozenset(_ALWAYS | {"val/accuracy", "val/accuracy_top5"}),
    "segmentation": frozenset(_ALWAYS | {"val/iou", "val/dice", "val/precision", "val/recall"}),
    "text-classification": frozenset(_ALWAYS | {"val/accuracy"}),
}
"""What each recipe measures, and so what `checkpoint.monitor` may name. A script names what it likes."""
