"""The built-in trainers' configuration. The API validates with these schemas and the trainer obeys them.

Every key has a default; a key whose other values no trainer obeys yet accepts only that default.
"""

from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from torchyard.schema import Count, Duration, Schema, unbuilt

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{1,100}$")]
Source = Annotated[str, Field(pattern=r"^(digits|file:///.{1,4000})$")]
Channels = Annotated[list[float], Field(min_length=1, max_length=4)]


class Normalization(Schema):
    """Per-channel mean and deviation of pixels scaled to 0…1."""

    mean: Channels
    std: Channels

    @model_validator(mode="after")
    def _same_length(self) -> Self:
        if len(self.mean) != len(self.std) or min(self.std) <= 0:
            raise ValueError("mean and std need the same number of channels, and every std must be above 0")
        return self


class ModelConfig(Schema):
    name: Name = Field(
        default="small_cnn",
        description="`small_cnn`, or any torchvision classification model by name, such as `resnet18`",
    )
    weights: Annotated[str, unbuilt("none")] = Field(default="none", description="`none`: start from random weights")
    init: Annotated[str, unbuilt("default")] = Field(
        default="default", description="`default`: PyTorch's own initialisation"
    )
    freeze: Annotated[list[str], unbuilt([])] = Field(default=[], description="parameters that do not train")


class DataConfig(Schema):
    source: Source = Field(
        default="digits", description="`digits`, or `file:///…` below a root that the worker's operator allowed"
    )
    val_fraction: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.15, description="held-out share, where the source has no split of its own"
    )
    split_seed: Annotated[int, Field(ge=0, lt=2**32)] = Field(default=0, description="seed of that split")
    image_size: Annotated[int, Field(ge=8, le=2048)] | None = Field(
        default=None, description="pixels a side; null keeps the source's own size"
    )
    normalize: Literal["auto", "none"] | Normalization = Field(
        default="auto", description="`auto`: the mean and deviation of the training images"
    )
    augment: Annotated[list[str], unbuilt([])] = Field(default=[], description="training-time transforms")
    workers: Annotated[int, Field(ge=0, le=64)] | Literal["auto"] = Field(
        default="auto", description="loader processes per rank; `auto` is 0 for data that lies in memory"
    )


class TrainingConfig(Schema):
    epochs: Annotated[int, Field(ge=1, le=1_000_000)] = Field(default=3, description="passes over the training data")
    max_steps: Count | None = Field(default=None, description="stop after this many optimizer steps over the whole run")
    per_device_batch_size: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=32, description="samples a rank and micro-batch"
    )
    gradient_accumulation_steps: Annotated[int, Field(ge=1, le=100_000)] = Field(
        default=1, description="micro-batches an optimizer step"
    )
    seed: Annotated[int, Field(ge=0, lt=2**32)] = Field(default=42, description="of weights, order and dropout")
    deterministic: bool = Field(default=False, description="two runs end bitwise equal, at some cost in speed")
    precision: Literal["auto", "bf16", "fp16", "fp32"] = Field(
        default="auto", description="`auto`: bf16 on a GPU that has it, else fp32"
    )
    channels_last: bool | Literal["auto"] = Field(default="auto", description="`auto`: on CUDA")
    compile: Annotated[bool, unbuilt(False)] = False
    auto_batch: Annotated[bool, unbuilt(False)] = False
    max_nonfinite_steps: Count = Field(
        default=3, description="fail after this many steps in a row with a NaN or infinite loss"
    )


class LossConfig(Schema):
    name: Literal["cross_entropy"] = "cross_entropy"
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0


class OptimizerConfig(Schema):
    name: Literal["sgd", "adam", "adamw"] = "adamw"
    lr: Annotated[float, Field(gt=0, le=1000)] = 0.002
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(default=0.9, description="sgd only")
    nesterov: bool = Field(default=False, description="sgd only")
    weight_decay: Annotated[float, Field(ge=0, le=10)] = Field(
        default=0.01, description="not applied to norms and biases"
    )
    fused: bool | Literal["auto"] = Field(default="auto", description="`auto`: on CUDA")
    clip_grad_norm: Annotated[float, Field(gt=0)] | None = None
    lookahead: Annotated[dict[str, float] | None, unbuilt(None)] = None
    lr_scaling: Annotated[str, unbuilt("none")] = "none"

    @model_validator(mode="after")
    def _nesterov_needs_momentum(self) -> Self:
        if self.name == "sgd" and self.nesterov and self.momentum == 0:
            raise ValueError("nesterov needs a momentum above 0")
        return self


class SchedulerConfig(Schema):
    name: Literal["constant", "step", "cosine"] = "cosine"
    warmup_steps: Annotated[int, Field(ge=0, le=2**31 - 1)] = Field(default=0, description="linear, from above zero")
    step_epochs: Count = Field(default=30, description="`step`: epochs between two drops")
    gamma: Annotated[float, Field(gt=0, le=1)] = Field(default=0.1, description="`step`: factor of each drop")
    patience: Annotated[int, unbuilt(10)] = 10
    min_lr: Annotated[float, Field(ge=0)] = Field(default=0.0, description="`cosine`: where it ends")


class DistributedConfig(Schema):
    """Options of DistributedDataParallel and its process group."""

    strategy: Annotated[str, unbuilt("ddp")] = "ddp"
    sync_batchnorm: bool = False
    find_unused_parameters: bool = False
    static_graph: bool = False
    gradient_as_bucket_view: bool = True
    bucket_cap_mb: Annotated[int, Field(ge=1, le=10_000)] = 25
    comm_hook: Annotated[str, unbuilt("none")] = "none"
    timeout: Duration = Field(default=timedelta(minutes=10), description="of one collective")


class EvaluationConfig(Schema):
    every_epochs: Count = 1
    threshold: Annotated[float, unbuilt(0.5)] = 0.5


class LoggingConfig(Schema):
    every_steps: Count = 10


class ImageClassification(Schema):
    """A classifier of images: a small CNN or a torchvision model, on class folders, an `.npz` file or `digits`."""

    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    training: TrainingConfig = TrainingConfig()
    loss: LossConfig = LossConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    lr_scheduler: SchedulerConfig = SchedulerConfig()
    ema: Annotated[dict[str, float] | None, unbuilt(None)] = None
    early_stopping: Annotated[dict[str, float] | None, unbuilt(None)] = None
    distributed: DistributedConfig = DistributedConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    logging: LoggingConfig = LoggingConfig()

    @model_validator(mode="after")
    def _static_graph_without_accumulation(self) -> Self:
        if self.distributed.static_graph and self.training.gradient_accumulation_steps > 1:
            raise ValueError("distributed.static_graph cannot be combined with gradient accumulation (no_sync)")
        return self


class Script(Schema):
    """A user's own program, one process per device under torchrun."""

    code: Annotated[str, Field(pattern=r"^file:///.{1,4000}$")] = Field(
        description="`file:///…`, a folder below a root that the worker's operator allowed"
    )
    entrypoint: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.\-/]{0,499}\.py$")] = "train.py"
    args: Annotated[list[Annotated[str, Field(max_length=10_000)]], Field(max_length=1000)] = []
    requirements: Annotated[str | None, unbuilt(None)] = None

    @model_validator(mode="after")
    def _entrypoint_stays_inside(self) -> Self:
        if ".." in self.entrypoint.split("/"):
            raise ValueError("entrypoint must lie inside the code folder")
        return self


METRICS: dict[str, frozenset[str]] = {
    "image-classification": frozenset(
        {"train/loss", "train/lr", "train/samples_per_second", "val/loss", "val/accuracy", "val/accuracy_top5"}
    ),
}
"""What each recipe measures, and so what `checkpoint.monitor` may name. A script names what it likes."""
