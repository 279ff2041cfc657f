"""Builds models without memory for their weights."""

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

LARGEST_REAL = 4096
"""Numbers of a tensor that is made: some models compute the sizes of their layers with small tensors."""
_MAKERS = frozenset(
    {torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.arange, torch.linspace, torch.eye}
)


class Sketching(TorchFunctionMode):
    """In its block, the tensors of a new module have shapes and no memory, but for small ones."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if func not in _MAKERS or given.get("device") is not None:
            return func(*args, **given)
        sketch = func(*args, **{**given, "device": "meta"})
        return sketch if sketch.numel() > LARGEST_REAL else func(*args, **given)
