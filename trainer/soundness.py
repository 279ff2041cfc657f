"""Whether a run can go on from what a checkpoint holds."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from torch import Tensor

_SHOWN = 3  # names in a message


def unfit(state: Mapping[str, Any], *, parameters: Collection[str]) -> str | None:
    """Why nothing should resume from the `state` of a recipe's checkpoint; None for a sound one.

    Weights, averages of weights and an optimizer's moments must be finite. `parameters` names what of the model's state
    is a weight: buffers are not judged.
    """
    judged = list(_judged(state, parameters))
    wrong = [name for name, tensor in judged if not bool(tensor.isfinite().all())]
    if not wrong:
        return None
    verb = "is" if len(wrong) == 1 else "are"
    shown = ", ".join([*wrong[:_SHOWN], *(["…"] if len(wrong) > _SHOWN else [])])
    return f"{len(wrong)} of its {len(judged)} tensors of weights and moments {verb} not finite ({shown})"


def _judged(state: Mapping[str, Any], parameters: Collection[str]) -> Iterator[tuple[str, Tensor]]:
    """Each tensor that must be finite, with a name for people."""
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
