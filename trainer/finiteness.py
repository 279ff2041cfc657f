"""Checks that the weights and moments in a checkpoint are finite."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from torch import Tensor

_MAX_NAMES = 3  # in a message


def nonfinite_weights(state: Mapping[str, Any], *, parameters: Collection[str]) -> str | None:
    """Returns why nothing should resume from a checkpoint's `state`, or None if its tensors are finite.

    Weights, averages of weights and the optimizer's moments must be finite. `parameters` names the weights in the
    model's state: buffers are not checked.
    """
    checked = list(_checked(state, parameters))
    wrong = [name for name, tensor in checked if not bool(tensor.isfinite().all())]
    if not wrong:
        return None
    verb = "is" if len(wrong) == 1 else "are"
    shown = ", ".join([*wrong[:_MAX_NAMES], *(["…"] if len(wrong) > _MAX_NAMES else [])])
    return f"{len(wrong)} of its {len(checked)} tensors of weights and moments {verb} not finite ({shown})"


def _checked(state: Mapping[str, Any], parameters: Collection[str]) -> Iterator[tuple[str, Tensor]]:
    """Yields each tensor that must be finite, with its name in a message."""
    yield from _weights("", state["model"], parameters)
    yield from _weights("raw ", state["raw"], parameters)
    yield from _weights("slow ", state["slow"], parameters)
    yield from _moments("", state["optimizer"])
    for rank, own in enumerate(state["own"] or ()):
        yield from _weights(f"rank {rank}'s ", own["model"], parameters)
        yield from _weights(f"rank {rank}'s average ", own["ema"], parameters)
        yield from _weights(f"rank {rank}'s slow ", own["lookahead"], parameters)
        yield from _moments(f" of rank {rank}", own["optimizer"])


def _weights(
    prefix: str, tensors: Mapping[str, Tensor] | None, parameters: Collection[str]
) -> Iterator[tuple[str, Tensor]]:
    for name, tensor in (tensors or {}).items():
        if name in parameters:
            yield prefix + name, tensor


def _moments(owner: str, optimizer: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
    for index, moments in optimizer["state"].items():
        for name, value in moments.items():
            if isinstance(value, Tensor):
                yield f"{name} of parameter {index}{owner}", value
