"""The configuration of `causal-lm`."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from torchyard.contract.recipes.entry import RecipeEntry
from torchyard.contract.recipes.pictures import Patterns
from torchyard.contract.recipes.training import (
    DataConfig,
    EvaluationConfig,
    ModelConfig,
    OptimizerConfig,
    Recipe,
    SchedulerConfig,
    Seed,
    TrainingConfig,
)
from torchyard.contract.wire.schema import BundleOrFile, Schema

HF_CAUSAL = (
    "gemma2",
    "gemma3_text",
    "gpt2",
    "gpt_neox",
    "granite",
    "llama",
    "mistral",
    "olmo2",
    "phi3",
    "qwen2",
    "qwen3",
    "smollm3",
    "stablelm",
    "starcoder2",
)
"""The values of `model_type` that a base may have: documents of a packed sequence do not see each other in them."""


class LoraConfig(Schema):
    """LoRA (Hu et al., arXiv 2106.09685): train low-rank updates of linear layers; the base model stays frozen."""

    rank: Annotated[int, Field(ge=1, le=4096)] = Field(default=16, description="rank of each update")
    alpha: Annotated[float, Field(gt=0, le=1_000_000)] = Field(
        default=32.0, description="each update is scaled by alpha / rank"
    )
    dropout: Annotated[float, Field(ge=0, lt=1)] = Field(default=0.0, description="dropout of the updates' inputs")
    targets: Literal["all-linear"] | Annotated[Patterns, Field(min_length=1)] = Field(
        default="all-linear",
        description="layers to update. `all-linear`: every linear layer except the last; or suffixes of layer "
        "names, such as `[q_proj, v_proj]`",
    )


class CausalModelConfig(ModelConfig):
    weights: BundleOrFile = Field(
        description="the base model: `bundle:sha256:…`, or `file:///…` inside an allowed folder. A Hugging Face "
        "folder with config.json, the tokenizer and safetensors weights"
    )
    method: Literal["lora", "full"] = Field(
        default="lora", description="`lora`: train low-rank updates of the base model; `full`: train all its weights"
    )
    lora: LoraConfig = Field(default=LoraConfig(), description="options of `method: lora`")
    freeze: Patterns = Field(
        default=[],
        description="`method: full` only: parameters to freeze: names, prefixes of names, or patterns with *",
    )
    attention: Literal["sdpa", "eager", "flex"] = Field(
        default="sdpa", description="the implementation of attention; `flex` needs torch.compile"
    )


class CausalDataConfig(DataConfig):
    source: BundleOrFile = Field(
        description="`bundle:sha256:…`, or `file:///…` inside an allowed folder: JSON lines with `text`, with "
        "`prompt` and `completion`, or with `messages`; or a folder with train.jsonl and val.jsonl"
    )
    val_fraction: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.05, description="fraction of the examples for validation, if the source has no validation split"
    )
    split_seed: Seed = Field(default=0, description="seed of that split")
    max_length: Annotated[int, Field(ge=8, le=1_048_576)] = Field(
        default=1024, description="maximum tokens of a sequence (the context length)"
    )
    packing: bool = Field(
        default=True,
        description="pack examples into sequences of max_length tokens; false: a sequence is one example, padded",
    )
    too_long: Literal["cut", "leave_out"] = Field(
        default="cut", description="what to do with an example of more than max_length tokens"
    )


class CausalLoss(Schema):
    name: Literal["cross_entropy"] = Field(
        default="cross_entropy",
        description="loss: the mean over the counted tokens of all ranks and micro-batches of a step",
    )
    chunk_tokens: Annotated[int, Field(ge=1, le=1_048_576)] = Field(
        default=1024, description="number of tokens whose logits are in memory at the same time"
    )


class CausalTrainingConfig(TrainingConfig):
    epochs: Annotated[int, Field(ge=1, le=1_000_000)] = Field(default=1, description="passes over the training data")
    per_device_batch_size: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=1, description="sequences of a micro-batch on each rank"
    )
    precision: Literal["auto", "bf16", "fp32"] = Field(  # pyright: ignore[reportIncompatibleVariableOverride] it is frozen
        default="auto",
        description="number format of the forward pass in training, and of a frozen base model; `auto`: bf16 on a "
        "GPU that supports it, else fp32",
    )
    activation_checkpointing: bool = Field(
        default=False, description="recompute each layer in the backward pass: less memory, a third more time"
    )


class CausalOptimizerConfig(OptimizerConfig):
    lr: Annotated[float, Field(gt=0, le=1000)] = Field(
        default=0.0002, description="learning rate after the warm-up; see lr_scaling"
    )
    weight_decay: Annotated[float, Field(ge=0, le=10)] = Field(
        default=0.0, description="not applied to norms and biases"
    )
    clip_grad_norm: Annotated[float, Field(gt=0)] | None = Field(
        default=1.0, description="largest norm of all gradients together; null: no clipping"
    )


class CausalSchedulerConfig(SchedulerConfig):
    warmup_steps: Annotated[int, Field(ge=0, le=2**31 - 1)] = Field(
        default=10, description="optimizer steps of a linear warm-up; 0: none"
    )


class CausalEvaluationConfig(EvaluationConfig):
    samples: Annotated[int, Field(ge=0, le=16)] = Field(
        default=4, description="number of validation examples that the model continues after each evaluation; 0: none"
    )
    new_tokens: Annotated[int, Field(ge=1, le=4096)] = Field(default=64, description="maximum tokens of a continuation")


class CausalLm(Recipe):
    """Fine-tunes a language model on texts, on prompts with completions, or on conversations."""

    STARTS_ON_BASE: ClassVar[bool] = True

    model: CausalModelConfig  # pyright: ignore[reportIncompatibleVariableOverride] it is frozen
    data: CausalDataConfig  # pyright: ignore[reportIncompatibleVariableOverride] it is frozen
    loss: CausalLoss = CausalLoss()
    training: CausalTrainingConfig = CausalTrainingConfig()  # pyright: ignore[reportIncompatibleVariableOverride] it is frozen
    optimizer: CausalOptimizerConfig = CausalOptimizerConfig()  # pyright: ignore[reportIncompatibleVariableOverride] it is frozen
    lr_scheduler: CausalSchedulerConfig = CausalSchedulerConfig()  # pyright: ignore[reportIncompatibleVariableOverride] it is frozen
    evaluation: CausalEvaluationConfig = CausalEvaluationConfig()  # pyright: ignore[reportIncompatibleVariableOverride] it is frozen

    @property
    def less_memory(self) -> Sequence[str]:
        length, training = self.data.max_length, self.training
        batch = self.batch_in_words(training.per_device_batch_size)
        proposed = [f"set data.max_length to {length // 2}: a micro-batch is {batch}"] if length >= 16 else []
        if not training.activation_checkpointing:
            proposed.append("set training.activation_checkpointing to true")
        if self.model.method == "full":
            proposed.append("set model.method to lora")
        if self.distributed.strategy == "fsdp":
            proposed.append("take more devices, among which fsdp divides the model")
        else:
            proposed.append("set distributed.strategy to fsdp, on several devices")
        return proposed

    def batch_in_words(self, samples: int) -> str:
        sequences = "1 sequence" if samples == 1 else f"{samples} sequences"
        return f"{sequences} ({samples * self.data.max_length:,} tokens)"


RECIPE = RecipeEntry(name="causal-lm", config=CausalLm, measures=frozenset({"val/perplexity"}))
