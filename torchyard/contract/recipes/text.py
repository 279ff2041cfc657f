"""The configuration of `text-classification`."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from torchyard.contract.recipes.entry import RecipeEntry
from torchyard.contract.recipes.pictures import (
    CLASS_WEIGHTS,
    HF,
    OPTIONS,
    ClassWeights,
    Init,
    ModelOptions,
    Patterns,
)
from torchyard.contract.recipes.training import (
    DataConfig,
    ModelConfig,
    OptimizerConfig,
    Recipe,
    SchedulerConfig,
    Seed,
    TrainingConfig,
)
from torchyard.contract.wire.schema import BundleOrFile, Schema
from torchyard.contract.wire.text import LONGEST_URL
from torchyard.contract.wire.wording import allowing

HF_TEXTS = (
    "albert",
    "bert",
    "camembert",
    "deberta-v2",
    "distilbert",
    "electra",
    "mobilebert",
    "modernbert",
    "roberta",
    "xlm-roberta",
)
"""The types of transformers' models for `hf/TYPE`, and in a directory of weights."""
_OURS = ("tiny", "roberta_base", "roberta_large")
_NAME = allowing(
    f"^({'|'.join(_OURS)}|hf/({'|'.join(HF_TEXTS)}))$",
    f"{', '.join(_OURS)}, or `hf/` and one of {', '.join(HF_TEXTS)}",
)


class TextModelConfig(ModelConfig):
    name: Annotated[str, Field(pattern=_NAME)] = Field(
        default="tiny",
        description="a RoBERTa encoder: `tiny` for CPUs, `roberta_base` or `roberta_large`; or `hf/TYPE`: a model "
        "type of transformers, such as `hf/distilbert`. Ignored if `weights` is a folder",
    )
    options: ModelOptions = OPTIONS
    weights: Annotated[
        str, Field(pattern=allowing(r"^(none|file:///.+)$", "none or file:///…"), max_length=LONGEST_URL)
    ] = Field(
        default="none",
        description="`none`: random weights and a tokenizer trained on the training text; `file:///…`: a "
        "transformers folder inside an allowed folder, with an encoder and its tokenizer. A head for "
        "the same classes is kept",
    )
    init: Init = Field(default="default", description="initialization of layers that `weights` does not fill")
    freeze: Patterns = Field(
        default=[], description="parameters to freeze: names, prefixes of names, or patterns with *"
    )
    dropout: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.1, description="dropout of the layers, the attention and the head"
    )

    @model_validator(mode="after")
    def _options_are_of_a_type(self) -> Self:
        if self.options and (self.weights != "none" or not self.name.startswith(HF)):
            raise ValueError(f"options are those of {HF}TYPE with random weights")
        return self


class TextDataConfig(DataConfig):
    source: BundleOrFile = Field(
        description="`bundle:sha256:…`, or `file:///…` inside an allowed folder: a folder with one file per class, "
        "or a CSV or JSON-lines file with text and label"
    )
    val_fraction: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.1, description="fraction for validation, if the source has no validation split"
    )
    split_seed: Seed = Field(default=0, description="seed of that split")
    max_length: Annotated[int, Field(ge=8, le=512)] = Field(
        default=128, description="maximum tokens of a text; longer texts are cut"
    )
    vocabulary: Annotated[int, Field(ge=300, le=200_000)] = Field(
        default=8000, description="vocabulary size of a tokenizer that is trained on the texts"
    )
    group_by_length: bool = Field(
        default=True,
        description="batch texts of similar length, in random order (less padding); false: batch random texts",
    )


class TextLoss(Schema):
    name: Literal["cross_entropy"] = Field(default="cross_entropy", description="loss: the mean over the samples")
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0, description="fraction of each target that is spread over all classes"
    )
    class_weights: ClassWeights = CLASS_WEIGHTS


class TextTrainingConfig(TrainingConfig):
    epochs: Annotated[int, Field(ge=1, le=1_000_000)] = Field(default=3, description="passes over the training data")


class TextOptimizerConfig(OptimizerConfig):
    lr: Annotated[float, Field(gt=0, le=1000)] = Field(
        default=0.0005, description="learning rate after the warm-up; see lr_scaling"
    )
    weight_decay: Annotated[float, Field(ge=0, le=10)] = Field(
        default=0.05, description="not applied to norms and biases"
    )
    clip_grad_norm: Annotated[float, Field(gt=0)] | None = Field(
        default=1.0, description="largest norm of all gradients together; null: no clipping"
    )


class TextSchedulerConfig(SchedulerConfig):
    warmup_steps: Annotated[int, Field(ge=0, le=2**31 - 1)] = Field(
        default=100, description="optimizer steps of a linear warm-up; 0: none"
    )


class TextClassification(Recipe):
    """Classifies texts with a RoBERTa encoder and a new head."""

    model: TextModelConfig = TextModelConfig()  # pyright: ignore[reportIncompatibleVariableOverride] it is frozen
    data: TextDataConfig  # pyright: ignore[reportIncompatibleVariableOverride] it is frozen
    loss: TextLoss = TextLoss()
    training: TextTrainingConfig = TextTrainingConfig()  # pyright: ignore[reportIncompatibleVariableOverride] it is frozen
    optimizer: TextOptimizerConfig = TextOptimizerConfig()  # pyright: ignore[reportIncompatibleVariableOverride] it is frozen
    lr_scheduler: TextSchedulerConfig = TextSchedulerConfig()  # pyright: ignore[reportIncompatibleVariableOverride] it is frozen


RECIPE = RecipeEntry(
    name="text-classification",
    config=TextClassification,
    measures=frozenset({"train/accuracy", "val/accuracy"}),
)
