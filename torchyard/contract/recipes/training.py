"""The configuration that all recipes share: training, optimizer, schedule, averages, early stopping, strategy."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal, Self, cast

from pydantic import Field, model_validator

from torchyard.contract.wire.schema import AutoDuration, Count, MetricKey, Schema
from torchyard.contract.wire.units import LONGEST

STALL_TIMEOUT = timedelta(minutes=10)
"""The default `stall_timeout` of a job."""
AFTER_STALL = timedelta(minutes=1)
"""By default, the timeout of a collective is this much longer than `stall_timeout`."""

Seed = Annotated[int, Field(ge=0, lt=2**32)]


class TrainingConfig(Schema):
    epochs: Annotated[int, Field(ge=1, le=1_000_000)] = Field(default=3, description="passes over the training data")
    max_steps: Count | None = Field(default=None, description="stop after this many optimizer steps over the whole run")
    per_device_batch_size: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=32, description="samples of a micro-batch on each rank"
    )
    gradient_accumulation_steps: Annotated[int, Field(ge=1, le=100_000)] = Field(
        default=1, description="micro-batches of an optimizer step on each rank"
    )
    seed: Seed = Field(default=42, description="seed of initial weights, sample order, augmentation and dropout")
    deterministic: bool = Field(default=False, description="make two runs bit-identical; training is slower")
    precision: Literal["auto", "bf16", "fp16", "fp32"] = Field(
        default="auto",
        description="number format of the forward pass in training; `auto`: bf16 on a GPU that supports it, else fp32",
    )
    channels_last: bool | Literal["auto"] = Field(default="auto", description="`auto`: on CUDA, for pictures")
    compile: bool = Field(default=False, description="torch.compile; needs a C++ compiler on the worker")
    auto_batch: bool = Field(
        default=False,
        description="halve micro-batches that do not fit in memory, and double the accumulation",
    )
    max_nonfinite_steps: Count = Field(
        default=3, description="fail after this many consecutive steps with a NaN or infinite loss or gradient norm"
    )


class LookaheadConfig(Schema):
    """Lookahead (Zhang et al., arXiv 1907.08610): slow weights that follow the trained weights."""

    every_steps: Count = Field(default=5, description="optimizer steps between two updates of the slow weights")
    alpha: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.5, description="step of the slow weights towards the trained ones, as a fraction of the distance"
    )


class OptimizerConfig(Schema):
    name: Literal["sgd", "adam", "adamw", "rmsprop"] = Field(
        default="adamw", description="the optimizer, from torch.optim"
    )
    lr: Annotated[float, Field(gt=0, le=1000)] = Field(
        default=0.002, description="learning rate after the warm-up; see lr_scaling"
    )
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(default=0.9, description="sgd and rmsprop only")
    nesterov: bool = Field(default=False, description="sgd only")
    weight_decay: Annotated[float, Field(ge=0, le=10)] = Field(
        default=0.01, description="not applied to norms and biases"
    )
    fused: bool | Literal["auto"] = Field(
        default="auto", description="fused kernels; `auto`: on CUDA, if the optimizer has them"
    )
    clip_grad_norm: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="largest norm of all gradients together; null: no clipping"
    )
    lookahead: LookaheadConfig | None = Field(
        default=None, description="Lookahead: slow weights that follow the trained weights"
    )
    lr_scaling: Literal["none", "linear", "sqrt"] = Field(
        default="none",
        description="multiply lr by the ratio of global batch to per_device_batch_size, or by its square root",
    )

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.name == "sgd" and self.nesterov and self.momentum == 0:
            raise ValueError("nesterov needs a momentum above 0")
        if self.name == "rmsprop" and self.fused is True:
            raise ValueError("PyTorch has no fused rmsprop: leave fused at auto")
        return self


class SchedulerConfig(Schema):
    name: Literal["constant", "step", "cosine", "plateau"] = Field(
        default="cosine", description="schedule of the learning rate after the warm-up"
    )
    warmup_steps: Annotated[int, Field(ge=0, le=2**31 - 1)] = Field(
        default=0, description="optimizer steps of a linear warm-up; 0: none"
    )
    warmup_epochs: Annotated[float, Field(ge=0, le=1_000_000)] = Field(
        default=0.0, description="the warm-up in epochs instead of steps, such as 0.5; 0: warmup_steps counts"
    )
    step_epochs: Annotated[float, Field(gt=0, le=1_000_000)] = Field(
        default=30.0, description="`step`: epochs between two drops, such as 2.4"
    )
    gamma: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.1, description="`step`, `plateau`: factor of each drop"
    )
    patience: Annotated[int, Field(ge=0, le=2**31 - 1)] = Field(
        default=10, description="`plateau`: consecutive evaluations without a better monitored metric before a drop"
    )
    min_lr: Annotated[float, Field(ge=0)] = Field(
        default=0.0, description="`cosine`: the last learning rate; `plateau`: the lowest"
    )

    @model_validator(mode="before")
    @classmethod
    def _epochs_replace_default_steps(cls, given: Any) -> Any:
        if isinstance(given, dict) and cast(dict[str, Any], given).get("warmup_epochs"):
            return {"warmup_steps": 0, **cast(dict[str, Any], given)}
        return given

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.warmup_steps and self.warmup_epochs:
            raise ValueError("warmup_steps and warmup_epochs cannot be combined: leave out one of them")
        return self


class EmaConfig(Schema):
    """An exponential moving average of weights and buffers, which evaluation and checkpoints use."""

    decay: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.9999, description="decay of the average at each optimizer step"
    )
    ramp: Annotated[int, Field(ge=0, le=2**31 - 1)] = Field(
        default=2000, description="optimizer steps over which the decay rises: decay · (1 − exp(−step / ramp)); 0: none"
    )
    device: Literal["model", "cpu"] = Field(
        default="model",
        description="where to keep the average: on the model's device, or in host memory, where a thread updates it",
    )


class EarlyStoppingConfig(Schema):
    monitor: MetricKey = Field(default="val/loss", description="metric that must improve")
    mode: Literal["min", "max"] = Field(default="min", description="whether lower or higher values are better")
    patience: Count = Field(default=50, description="consecutive evaluations without an improvement")
    min_delta: Annotated[float, Field(ge=0)] = Field(
        default=0.0, description="minimum change that counts as an improvement"
    )


class LocalSgdConfig(Schema):
    """Post-local SGD (Lin et al., arXiv 1808.07217)."""

    warmup_steps: Annotated[int, Field(ge=0, le=2**31 - 1)] = Field(
        default=0, description="optimizer steps with all-reduced gradients before ranks train alone"
    )
    period: Count = Field(default=4, description="optimizer steps between two averages of the weights")


class DistributedConfig(Schema):
    """How the ranks train one model."""

    strategy: Literal["ddp", "local_sgd", "fsdp"] = Field(
        default="ddp",
        description="`ddp`: all-reduced gradients; `local_sgd`: each rank trains alone, and weights are averaged "
        "periodically; `fsdp`: parameters, gradients and optimizer sharded over the ranks",
    )
    local_sgd: LocalSgdConfig = LocalSgdConfig()
    sync_batchnorm: bool = Field(default=False, description="batch norm statistics over the micro-batches of all ranks")
    find_unused_parameters: bool = Field(default=False, description="ddp only")
    static_graph: bool = Field(default=False, description="ddp only")
    gradient_as_bucket_view: bool = Field(default=True, description="ddp only")
    bucket_cap_mb: Annotated[int, Field(ge=1, le=10_000)] = Field(default=25, description="ddp only")
    comm_hook: Literal["none", "bf16", "fp16", "powersgd"] = Field(
        default="none", description="ddp only: compression of all-reduced gradients"
    )
    timeout: AutoDuration = Field(
        default="auto",
        description="timeout of a collective; `auto`: one minute longer than `stall_timeout`",
    )

    def collective_timeout(self, stall_timeout: timedelta = STALL_TIMEOUT) -> timedelta:
        """Returns `timeout`; for `auto`, longer than a stall, so that the stacks of all ranks are written first."""
        if self.timeout == "auto":
            return min(stall_timeout + AFTER_STALL, LONGEST)
        return self.timeout

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if not self.timeout:
            raise ValueError("timeout must be at least 1s")
        if self.strategy != "ddp":
            chosen = [
                name
                for name in ("find_unused_parameters", "static_graph", "comm_hook")
                if getattr(self, name) not in {False, "none"}
            ]
            if chosen:
                raise ValueError(f"{', '.join(chosen)} can be used with strategy ddp only, not with {self.strategy}")
        if self.static_graph and self.find_unused_parameters:
            raise ValueError("static_graph finds unused parameters itself: leave out find_unused_parameters")
        if self.static_graph and self.comm_hook == "powersgd":
            raise ValueError("comm_hook powersgd cannot be combined with static_graph, which rebuilds the buckets")
        return self


class EvaluationConfig(Schema):
    every_epochs: Count = Field(
        default=1, description="epochs between two evaluations; the last epoch is always evaluated"
    )
    threshold: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.5, description="segmentation: a pixel with a higher probability is positive"
    )
    remeasure_best: bool = Field(
        default=True, description="re-evaluate the best checkpoint in one process after training"
    )


class LoggingConfig(Schema):
    every_steps: Count = Field(default=10, description="optimizer steps between two points of the training metrics")


class ModelConfig(Schema):
    """The keys of `model` that every recipe has."""

    weights: str


class DataConfig(Schema):
    """The keys of `data` that every recipe has."""

    source: str


class Recipe(Schema):
    """The configuration that all recipes share. Each recipe narrows `model` and `data` and adds its own keys."""

    STARTS_ON_BASE: ClassVar[bool] = False
    """Whether `init_from` goes on top of `model.weights`, which the recipe always needs."""

    training: TrainingConfig = TrainingConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    lr_scheduler: SchedulerConfig = SchedulerConfig()
    ema: EmaConfig | None = Field(default=None, description="keep an average of the weights, and evaluate and save it")
    early_stopping: EarlyStoppingConfig | None = Field(
        default=None, description="end the run when a metric stops improving"
    )
    distributed: DistributedConfig = DistributedConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    logging: LoggingConfig = LoggingConfig()
    model: ModelConfig
    data: DataConfig

    @property
    def unmeasured(self) -> frozenset[str]:
        """Metrics of the recipe that this configuration does not measure."""
        return frozenset()

    @property
    def less_memory(self) -> Sequence[str]:
        """What needs less memory beside a smaller micro-batch, the first to try first: `set … to …`."""
        return ()

    def batch_in_words(self, samples: int) -> str:
        """Returns what a micro-batch of so many samples is called."""
        return f"{samples} samples"

    @model_validator(mode="after")
    def _possible_together(self) -> Self:
        strategy, training = self.distributed.strategy, self.training
        if self.distributed.static_graph and training.gradient_accumulation_steps > 1:
            raise ValueError("distributed.static_graph cannot be combined with gradient accumulation (no_sync)")
        if self.distributed.static_graph and training.auto_batch:
            raise ValueError("distributed.static_graph cannot be combined with auto_batch, which may accumulate")
        if strategy == "fsdp" and training.precision == "fp16":
            raise ValueError("training.precision fp16 cannot be combined with fsdp: use bf16 or fp32")
        if strategy == "fsdp" and self.ema is not None and self.ema.device == "cpu":
            raise ValueError(
                "ema.device cpu cannot be combined with fsdp, which has a shard of the average on each device"
            )
        if strategy == "fsdp" and training.compile:
            raise ValueError("training.compile cannot be combined with fsdp yet")
        if strategy == "fsdp" and self.optimizer.name == "sgd" and self.optimizer.fused is True:
            raise ValueError("optimizer.fused sgd cannot be combined with fsdp: leave fused at auto")
        if strategy == "fsdp" and training.auto_batch:
            raise ValueError(
                "training.auto_batch cannot be combined with fsdp: it would run the whole model on each device"
            )
        if strategy == "local_sgd" and training.precision == "fp16":
            raise ValueError(
                "training.precision fp16 cannot be combined with local_sgd: the ranks would skip different steps"
            )
        if strategy == "local_sgd" and self.distributed.sync_batchnorm:
            raise ValueError("sync_batchnorm cannot be combined with local_sgd, whose ranks train alone")
        return self
