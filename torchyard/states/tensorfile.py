"""Writes and reads files of tensors in the format safetensors: a header in JSON, and the bytes of each tensor.

A file is written tensor by tensor. What is read may come from anyone: it is checked before memory is taken for it.
"""

from collections.abc import Mapping
import json
import math
from typing import Any, BinaryIO, cast

import torch
from torch import Tensor

from torchyard.contract.errors import DataError

DTYPES: Mapping[str, torch.dtype] = {
    "F64": torch.float64,
    "I64": torch.int64,
    "U64": torch.uint64,
    "C64": torch.complex64,
    "F32": torch.float32,
    "I32": torch.int32,
    "U32": torch.uint32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I16": torch.int16,
    "U16": torch.uint16,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3": torch.float8_e4m3fn,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""What the format calls them."""
NAMES = {dtype: name for name, dtype in DTYPES.items()}

_LENGTH = 8  # bytes of the header's length
_MOST_HEADER_BYTES = 100 << 20
_MOST_DIMENSIONS = 64


def write_tensors(tensors: Mapping[str, Tensor], file: BinaryIO, *, metadata: Mapping[str, str] | None = None) -> None:
    """Writes a file of `tensors`, one after the other. Takes no memory but for one that is on a device or not in order.

    `metadata`: texts for the header. Raises ValueError for a tensor that the format does not have, and OSError.
    """
    # The widest first, so that each begins at a multiple of its width.
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0]))
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    end = 0
    for name, tensor in ordered:
        header[name] = {
            "dtype": _name_of(name, tensor),
            "shape": [*tensor.shape],
            "data_offsets": [end, end + tensor.nbytes],
        }
        end += tensor.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _LENGTH)
    file.write(len(text).to_bytes(_LENGTH, "little") + text)
    for _, tensor in ordered:
        file.write(_bytes_of(tensor))


def read_tensors(content: memoryview, *, what: str) -> dict[str, Tensor]:
    """Returns the tensors by name in the mapped bytes of a file. They share its memory.

    Raises DataError, which names `what`, unless it is a whole file of the format and no more.
    """
    size = int.from_bytes(content[:_LENGTH], "little")
    if len(content) < _LENGTH or size > min(len(content) - _LENGTH, _MOST_HEADER_BYTES):
        raise DataError(f"{what} is incomplete: it ends within its header")
    data = content[_LENGTH + size :]
    try:
        header = json.loads(bytes(content[_LENGTH : _LENGTH + size]))
        places = {name: _place(entry) for name, entry in header.items() if name != "__metadata__"}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DataError(f"{what} is damaged: its header is none of a file of tensors ({_said(error)})") from error
    end = 0
    for start, stop in sorted((start, stop) for _, _, start, stop in places.values()):
        if start != end:
            raise DataError(f"{what} is damaged: its tensors do not lie one after the other")
        end = stop
    if end != len(data):
        raise DataError(f"{what} is incomplete: its tensors have {end} bytes, and it has {len(data)} for them")
    aligned = (_LENGTH + size) % _LENGTH == 0
    if not aligned or any(start % dtype.itemsize for dtype, _, start, _ in places.values()):
        raise DataError(f"{what} is damaged: a tensor does not begin at a multiple of its width")
    return {name: _mapped(data[start:stop], dtype, shape) for name, (dtype, shape, start, stop) in places.items()}


def _name_of(name: str, tensor: Tensor) -> str:
    if tensor.layout is not torch.strided or tensor.dtype not in NAMES:
        raise ValueError(f"a file of tensors cannot have {name}: it is {tensor.layout}, {tensor.dtype}")
    return NAMES[tensor.dtype]


def _bytes_of(tensor: Tensor) -> memoryview:
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    return memoryview(cast(Any, plain.reshape(-1).view(torch.uint8).numpy()))


def _place(entry: Any) -> tuple[torch.dtype, tuple[int, ...], int, int]:
    """Returns dtype, shape, and where the bytes begin and end. Raises what a wrong entry raises."""
    dtype, shape, (start, stop) = DTYPES[entry["dtype"]], checked_shape(entry["shape"]), entry["data_offsets"]
    if not (type(start) is type(stop) is int and 0 <= start <= stop):
        raise ValueError(f"bytes {start} to {stop}")
    if stop - start != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"a tensor of {shape} has {stop - start} bytes")
    return dtype, shape, start, stop


def checked_shape(shape: Any) -> tuple[int, ...]:
    """Returns a shape that JSON has. Raises ValueError if it is none."""
    if not isinstance(shape, list) or len(shape) > _MOST_DIMENSIONS:
        raise ValueError("a shape is not a list of sizes")
    if not all(type(size) is int and 0 <= size < 2**63 for size in shape):
        raise ValueError("a shape has other values than sizes")
    return tuple(shape)


def _mapped(content: memoryview, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    if not len(content):
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(content, dtype=dtype).reshape(shape)


def _said(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]
