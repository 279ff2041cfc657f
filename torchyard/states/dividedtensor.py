"""A tensor whose rows lie in several files."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from torchyard.contract.wire.since311 import Self

_FACTS = frozenset(
    {
        *(Tensor.shape.__get__, Tensor.dtype.__get__, Tensor.device.__get__, Tensor.layout.__get__),  # pyright: ignore[reportAttributeAccessIssue]
        *(Tensor.ndim.__get__, Tensor.itemsize.__get__, Tensor.nbytes.__get__),  # pyright: ignore[reportAttributeAccessIssue]
        *(Tensor.is_meta.__get__, Tensor.is_quantized.__get__, Tensor.requires_grad.__get__),  # pyright: ignore[reportAttributeAccessIssue]
        *(Tensor.size, Tensor.dim, Tensor.numel, Tensor.is_floating_point, Tensor.is_complex, Tensor.element_size),
    }
)
"""What is known of a tensor without its values."""


_CHANGES = frozenset(
    {"__setitem__", "__set__", "__delete__"}
    | {f"__i{name}__" for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor")}
    | {"__ilshift__", "__irshift__"}
)


class DividedTensor(Tensor):
    """A tensor on the CPU that is read when it is used: `[rows]` reads these rows alone, all else reads it whole.

    What is read is a plain tensor. It cannot be changed in place.
    """

    parts: Sequence[tuple[int, Tensor]]

    def __new__(cls, shape: Sequence[int], parts: Sequence[tuple[int, Tensor]]) -> Self:
        """`parts`: tensors of rows, each with the number of its first row, in order and without a gap."""
        made: Self = cls._make_wrapper_subclass(cls, shape, dtype=parts[0][1].dtype)  # pyright: ignore
        made.parts = parts
        return made

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: object, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        if func in _FACTS:
            with torch._C.DisableTorchFunctionSubclass():  # pyright: ignore[reportPrivateUsage]
                return func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if isinstance(args[0] if args else None, cls) and _changes(name):
            raise TypeError(f"{name}: a tensor that lies in several files cannot be changed in place")
        if func is Tensor.__getitem__ and isinstance(args[0], cls):
            return _item(args[0], args[1])
        plain = tree_map_only(cls, _whole, (tuple(args), kwargs or {}))
        return func(*plain[0], **plain[1])

    @classmethod
    def __torch_dispatch__(  # pyrefly: ignore[bad-override] torch calls it so
        cls, func: Any, types: object, args: Any = (), kwargs: Any = None
    ) -> Any:
        plain = tree_map_only(cls, _whole, (args, kwargs or {}))
        return func(*plain[0], **plain[1])


def _changes(name: str) -> bool:
    return name in _CHANGES or (name.endswith("_") and not name.endswith("__"))


def _item(tensor: DividedTensor, index: Any) -> Tensor:
    first, *others = index if isinstance(index, tuple) else (index,)
    if not isinstance(first, slice) or first.step not in (None, 1):
        return _whole(tensor)[index]
    start, stop, _ = first.indices(tensor.shape[0])
    return _rows(tensor, start, stop)[(slice(None), *others)]


def _whole(tensor: DividedTensor) -> Tensor:
    return _rows(tensor, 0, tensor.shape[0])


def _rows(tensor: DividedTensor, start: int, stop: int) -> Tensor:
    """Returns rows: a view of their part's memory if they are in one, else a copy."""
    overlapping: list[Tensor] = []
    for first, part in tensor.parts:
        inner = part[max(start - first, 0) : max(stop - first, 0)]
        if len(inner):
            overlapping.append(inner)
    if len(overlapping) == 1:
        return overlapping[0]
    shape = (max(stop - start, 0), *tensor.shape[1:])
    if not overlapping:
        return torch.empty(shape, dtype=tensor.dtype)
    return torch.cat(overlapping)
