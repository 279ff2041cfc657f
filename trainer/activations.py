"""Less memory for activations: the layers of a model are computed again in the backward pass."""

from torch import nn

from torchyard.contract.errors import ConfigError


def recompute_layers(model: nn.Module) -> None:
    """Makes a model of transformers keep only the inputs of its layers in training, and compute the rest again.

    The gradients stay the same. Works before and after an adapter, DDP and FSDP are put on it: the library's layers
    checkpoint their `forward`, inside the hooks. Raises ConfigError if the model has no such layers.
    """
    from transformers import PreTrainedModel

    assert isinstance(model, PreTrainedModel)
    try:
        # Reentrant checkpoints would have no gradient for an adapter's layers behind frozen embeddings.
        model.activation_checkpointing_enable({"use_reentrant": False})
    except ValueError as error:
        raise ConfigError(f"training.activation_checkpointing: {error}") from error
