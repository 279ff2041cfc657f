"""The registry of recipes and their configuration schemas. The API validates jobs with these schemas.

A recipe is a module here, with its schema and an entry called `RECIPE`, and a module of the same name in
`trainer.recipes`, with a function called `make_task`.
"""

import importlib

from torchyard.contract.recipes.causal import (
    HF_CAUSAL,
    CausalDataConfig,
    CausalEvaluationConfig,
    CausalLm,
    CausalModelConfig,
    LoraConfig,
)
from torchyard.contract.recipes.classification import ClassificationLoss, ImageClassification
from torchyard.contract.recipes.entry import RecipeEntry
from torchyard.contract.recipes.pictures import (
    HF,
    HF_PICTURES,
    TIMM,
    ClassWeights,
    ImageDataConfig,
    ImageModelConfig,
    Normalization,
)
from torchyard.contract.recipes.script import Script
from torchyard.contract.recipes.segmentation import Segmentation, SegmentationDataConfig, SegmentationLoss
from torchyard.contract.recipes.text import HF_TEXTS, TextClassification, TextDataConfig, TextLoss, TextModelConfig
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
    "HF",
    "HF_CAUSAL",
    "HF_PICTURES",
    "HF_TEXTS",
    "MODULES",
    "REGISTRY",
    "TIMM",
    "CausalDataConfig",
    "CausalEvaluationConfig",
    "CausalLm",
    "CausalModelConfig",
    "ClassWeights",
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
    "LoraConfig",
    "Normalization",
    "OptimizerConfig",
    "Recipe",
    "RecipeEntry",
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

MODULES = (
    "classification",
    "segmentation",
    "text",
    "causal",
)
"""The modules of this package, and of `trainer.recipes`, that define one recipe each. A new recipe is one more line."""


def _registered(module: str) -> RecipeEntry:
    return importlib.import_module(f"{__name__}.{module}").RECIPE


REGISTRY: dict[str, RecipeEntry] = {entry.name: entry for entry in map(_registered, MODULES)}
"""Every recipe by the name that a job spec uses."""
