"""Makes a state of what `torch.load` reads with `weights_only=True`, or says which part of it that is not."""

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Mapping
from pathlib import PurePath
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import torch

_PLAIN = frozenset({bool, int, float, complex, str, bytes, bytearray, type(None)})
_DEEPEST = 100
_ADVICE = {
    "Module": "save its state_dict()",
    "Optimizer": "save its state_dict()",
    "Namespace": "save vars() of it",
}
"""What to save instead, by the name of a class or of one that it inherits from."""


def readable(state: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the state with NumPy's numbers as Python's, its arrays as tensors, paths as texts, defaultdicts as dicts.

    Tensors stay the same objects, but for those that are conjugated or negated when they are read. Raises TypeError for
    what cannot be read again, with the path of its key.
    """
    return {_key(key, ""): _readable(value, f"{key}", 1) for key, value in state.items()}


def _readable(value: Any, path: str, depth: int) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if depth > _DEEPEST:
        raise TypeError(f"{path[:200]}: is nested more than {_DEEPEST} levels deep, or holds itself")
    if kind in (dict, OrderedDict, defaultdict, Counter):
        made = {_key(key, path): _readable(item, f"{path}.{key}", depth + 1) for key, item in value.items()}
        return OrderedDict(made) if kind is OrderedDict else Counter(made) if kind is Counter else made
    if kind in (list, tuple, set):
        return kind(_readable(item, f"{path}.{number}", depth + 1) for number, item in enumerate(value))
    return str(value) if isinstance(value, PurePath) else _of_libraries(value, path)


def _of_libraries(value: Any, path: str) -> Any:
    """Returns what NumPy or torch has made. Imports neither: without them it cannot be theirs."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and isinstance(value, numpy.generic):
        return _readable(value.item(), path, _DEEPEST)
    if numpy is not None and isinstance(value, numpy.ndarray):
        return _array(value, path)
    if torch is not None and isinstance(value, torch.Tensor):
        return _tensor(value, path)
    if torch is not None and isinstance(value, (torch.Size, torch.dtype, torch.device)):
        return value
    raise _refused(path, value)


def _key(key: Any, path: str) -> Any:
    if type(key) in _PLAIN:
        return key
    if (numpy := sys.modules.get("numpy")) is not None and isinstance(key, numpy.generic):
        return key.item()
    if type(key) is tuple:
        return tuple(_key(part, path) for part in key)
    if isinstance(key, PurePath):
        return str(key)
    raise _refused(f"{path}.{key!r}"[:200], key)


def _array(value: "np.ndarray[Any, Any]", path: str) -> "torch.Tensor":
    import torch

    try:
        return torch.from_numpy(value.copy())
    except TypeError:
        raise TypeError(f"{path}: no tensor has the type {value.dtype} of this array: save tolist() of it") from None


def _tensor(value: "torch.Tensor", path: str) -> "torch.Tensor":
    import torch

    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        raise TypeError(f"{path}: is a {type(value).__name__}: save a torch.Tensor")
    if value.device.type == "meta":
        raise TypeError(f"{path}: is a tensor on the device meta, which has no values")
    if value.is_quantized or value.layout is not torch.strided:
        return value
    return value.resolve_conj().resolve_neg() if value.is_conj() or value.is_neg() else value


def _refused(path: str, value: object) -> TypeError:
    kind = type(value)
    names = [each.__name__ for each in kind.__mro__]
    advice = next((_ADVICE[name] for name in names if name in _ADVICE), "save numbers, texts, lists, dicts or tensors")
    shown = f"{kind.__module__}.{kind.__qualname__}"
    return TypeError(f"{path}: is a {shown}, which a checkpoint cannot give back: {advice}")
