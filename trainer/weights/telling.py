"""Tells a job which of its model's parameters the weights that it names have not filled."""

from collections.abc import Collection

from torch import nn

from trainer.data.scanning import Scan

_SHOWN = 5
"""Names that are listed, at most."""


def note_new(scan: Scan, model: nn.Module, new: Collection[str], *, what: str, expected: Collection[str]) -> None:
    """Tells the job which parameters are `new`, as `what` does not fill them. It warns of those that are not expected.

    Without a word, a file of another model would train almost from scratch.
    """
    names = [name for name, _ in model.named_parameters()]
    added = [name for name in names if name in new]
    text = f"model.weights: {len(names) - len(added)} of {len(names)} parameters start from {what}"
    scan.note(
        [f"{text}; new: {listed(added)}" if added else text], "info" if set(added) <= set(expected) else "warning"
    )


def head(model: nn.Module, *, classes: int) -> set[str]:
    """Returns the names of the parameters of the last layer with an output for each class."""
    last = None
    for path, module in model.named_modules():
        weight = getattr(module, "weight", None)
        if isinstance(weight, nn.Parameter) and weight.dim() > 1 and len(weight) == classes:
            last = path, module
    return set() if last is None else {f"{last[0]}.{name}" for name, _ in last[1].named_parameters(recurse=False)}


def listed(names: Collection[str]) -> str:
    """Returns the first few names, and how many there are."""
    some = ", ".join([*names][:_SHOWN])
    return f"{some}, … ({len(names)} in all)" if len(names) > _SHOWN else some
