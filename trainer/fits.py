"""How much memory fine-tuning a language model takes on each device, by arithmetic and not by measurement."""

from dataclasses import dataclass
from typing import Literal

_LINEAR_LAYERS = 7
"""In a layer: of queries, keys, values and outputs, and three of the MLP. Each has an update with `lora`."""
_OF_LOGITS = 8
"""Bytes of a logit at the peak: two numbers in float32, whatever the number format."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """A model of the kind of llama, which most are."""

    hidden: int
    layers: int
    heads: int
    key_heads: int
    """Heads of keys and values."""
    head_size: int
    intermediate: int
    vocabulary: int
    tied: bool = False
    """Whether the head has the weights of the embeddings."""

    @property
    def pairs(self) -> int:
        """Inputs and outputs of a layer's linear layers, added up: an update of rank 1 has as many weights."""
        queries, keys = self.heads * self.head_size, self.key_heads * self.head_size
        return 5 * self.hidden + 2 * queries + 2 * keys + 2 * self.hidden + 3 * self.intermediate

    @property
    def layer(self) -> int:
        """Weights of a layer."""
        queries, keys = self.heads * self.head_size, self.key_heads * self.head_size
        return self.hidden * (2 * queries + 2 * keys + 3 * self.intermediate + 2)

    @property
    def rest(self) -> int:
        """Weights outside of the layers."""
        return self.hidden * self.vocabulary * (1 if self.tied else 2) + self.hidden

    @property
    def parameters(self) -> int:
        """All weights."""
        return self.layers * self.layer + self.rest


@dataclass(frozen=True, kw_only=True)
class Setup:
    """How it is fine-tuned: with AdamW, by `fsdp` if there are several devices."""

    method: Literal["lora", "full"]
    length: int
    """`data.max_length`."""
    rows: int = 1
    """`training.per_device_batch_size`."""
    half: bool = True
    """Whether `training.precision` is bf16, else fp32."""
    recompute: bool = False
    """`training.activation_checkpointing`."""
    devices: int = 1
    rank: int = 16
    chunk: int = 1024
    """`loss.chunk_tokens`."""

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch."""
        return self.rows * self.length

    @property
    def width(self) -> int:
        """Bytes of a number in matrix products."""
        return 2 if self.half else 4


@dataclass(frozen=True)
class Needed:
    """Bytes on each device at the peak of a step."""

    weights: int
    gradients: int
    moments: int
    activations: int
    logits: int

    @property
    def total(self) -> int:
        """All of them. The context of the device and fragments of its allocator come on top."""
        return self.weights + self.gradients + self.moments + self.activations + self.logits


def needed(model: Sizes, setup: Setup) -> Needed:
    """Returns what training takes. It is an upper bound, as not all are at their largest at the same time."""
    trained, frozen = _parameters(model, setup)
    kept = trained * 4 + frozen * setup.width
    copies, gradients = _whole(model, setup) if setup.devices > 1 else (casts(model, setup), 0)
    again = setup.tokens * _of_layer(model, setup) if setup.recompute else 0
    return Needed(
        weights=kept // setup.devices + copies,
        gradients=trained * 4 // setup.devices + gradients,
        moments=trained * 8 // setup.devices,
        activations=saved(model, setup) + again,
        logits=_of_head(model, setup),
    )


def saved(model: Sizes, setup: Setup) -> int:
    """Returns the bytes of activations that the forward pass keeps for the backward pass."""
    stream = 4 if setup.method == "full" else setup.width  # weights in float32 make hidden states in float32
    of_layer = model.hidden * stream if setup.recompute else _of_layer(model, setup)
    last = model.hidden * (4 + (4 if setup.method == "full" else 0))
    return setup.tokens * (model.layers * of_layer + last)


def casts(model: Sizes, setup: Setup) -> int:
    """Returns the bytes of the copies in bf16 that autocast makes of weights in float32, until the backward pass."""
    if not setup.half:
        return 0
    trained, _ = _parameters(model, setup)
    return 2 * (trained if setup.method == "lora" else model.layers * model.layer + model.hidden * model.vocabulary)


def _parameters(model: Sizes, setup: Setup) -> tuple[int, int]:
    """Returns the weights that train, which are in float32, and those that do not."""
    if setup.method == "full":
        return model.parameters, 0
    return setup.rank * model.layers * model.pairs, model.parameters


def _of_layer(model: Sizes, setup: Setup) -> int:
    """Returns the bytes of a token that a layer needs in its backward pass."""
    width, lora = setup.width, setup.method == "lora"
    attention = model.heads * model.head_size
    norms = 2 * model.hidden * 4 * (1 if lora else 2)  # their inputs, and what a weight that trains is multiplied with
    # Under autocast each linear layer keeps a bf16 copy of its input. In float32, layers with one input share it.
    inputs = (5 if setup.half else 2) * model.hidden * width
    scores = (5 if lora and setup.half else 4) * attention * width + 4 * model.heads + setup.length * width
    inner = 4 * model.intermediate * width
    updates = _LINEAR_LAYERS * setup.rank * 4 if lora else 0
    return norms + inputs + scores + inner + updates


def _of_head(model: Sizes, setup: Setup) -> int:
    """Returns the bytes of a chunk's logits and of the gradients that the loss computes in the forward pass."""
    logits = min(setup.chunk, setup.tokens) * model.vocabulary * _OF_LOGITS
    weight = model.hidden * model.vocabulary * setup.width if setup.method == "full" else 0
    return logits + weight + setup.tokens * model.hidden * setup.width


def _whole(model: Sizes, setup: Setup) -> tuple[int, int]:
    """Returns the bytes of what is whole on each device of `fsdp`: weights of the rest and of two layers, gradients."""
    gradients = (model.layer + model.rest) * setup.width if setup.method == "full" else 0
    return (2 * model.layer + model.rest) * setup.width, gradients
