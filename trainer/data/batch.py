"""What the model and the loss get at once."""

from typing import Any, NamedTuple


class Batch(NamedTuple):
    """A micro-batch on the rank's device."""

    inputs: Any
    """The one argument of the model: a tensor, or a dict of tensors."""
    targets: Any
    """The argument of the loss beside the model's outputs: a tensor, or a tuple of tensors."""
