"""Checks that the weights, buffers and moments in a checkpoint are finite."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from torch import Tensor, nn

_MAX_NAMES = 3  # in a message
_BLOCK = 1 << 17  # values


def names_to_check(model: nn.Module) -> frozenset[str]:
    """Returns the names of parameters and buffers that must be finite: not buffers that are infinite by design."""
    infinite = {name for name, buffer in model.named_buffers() if bool(buffer.isinf().any())}
    return frozenset(model.state_dict().keys() - infinite)


def nonfinite_weights(state: Mapping[str, Any], *, names: Collection[str]) -> str | None:
    """Returns why nothing should resume from a checkpoint's `state`, or None if its tensors are finite.

    Weights and buffers, their averages and the optimizer's moments must be finite. `names`: those of the model's state
    that are checked.
    """
    checked = list(_checked(state, names))
    wrong = [name for name, tensor in checked if not _is_finite(tensor)]
    if not wrong:
        return None
    verb = "is" if len(wrong) == 1 else "are"
    shown = ", ".join([*wrong[:_MAX_NAMES], *(["…"] if len(wrong) > _MAX_NAMES else [])])
    return f"{len(wrong)} of its {len(checked)} tensors of weights, buffers and moments {verb} not finite ({shown})"


def _is_finite(tensor: Tensor) -> bool:
    """Looks at one block after the other, as a check takes more memory than what it checks."""
    return all(bool(block.isfinite().all()) for block in tensor.reshape(-1).split(_BLOCK))


def _checked(state: Mapping[str, Any], names: Collection[str]) -> Iterator[tuple[str, Tensor]]:
    """Yields each tensor that must be finite, with its name in a message."""
    yield from _weights("", state["model"], names)
    yield from _weights("raw ", state["raw"], names)
    yield from _weights("slow ", state["slow"], names)
    yield from _moments("", state["optimizer"])
    for rank, own in enumerate(state["own"] or ()):
        yield from _weights(f"rank {rank}'s ", own["model"], names)
        yield from _weights(f"rank {rank}'s average ", own["ema"], names)
        yield from _weights(f"rank {rank}'s slow ", own["lookahead"], names)
        yield from _moments(f" of rank {rank}", own["optimizer"])


def _weights(prefix: str, tensors: Mapping[str, Tensor] | None, names: Collection[str]) -> Iterator[tuple[str, Tensor]]:
    for name, tensor in (tensors or {}).items():
        if name in names:
            yield prefix + name, tensor


def _moments(owner: str, optimizer: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
    for index, moments in optimizer["state"].items():
        for name, value in moments.items():
            if isinstance(value, Tensor):
                yield f"{name} of parameter {index}{owner}", value
