"""Copies and writes the tensors of a checkpoint. torch is imported when a function first needs it."""

from collections.abc import Callable, Iterator, Mapping
import copy
import importlib.util
from typing import TYPE_CHECKING, Any, TypeVar

from torchyard.run import accelerator

if TYPE_CHECKING:
    import torch

T = TypeVar("T")


def on_host(tree: T, *, clone: bool) -> tuple[T, Callable[[], None]]:
    """Returns `tree` with its tensors in host memory, and a function that waits until they have arrived there.

    It does not wait for a GPU: the copies into pinned memory are enqueued on the current stream, before anything that
    changes the tensors later. With `clone`, tensors in host memory are copied too, so that training may change them.
    Tensors that share a storage still share one. The rest of `tree` (nested dicts, lists and tuples) is copied.
    """
    import torch

    copies: dict[int, Any] = {}
    storages: dict[tuple[object, ...], torch.UntypedStorage] = {}
    devices: set[torch.device] = set()
    with torch.no_grad():
        for tensor in _tensors(tree):
            devices.add(tensor.device)
            if id(tensor) not in copies and (clone or tensor.device.type != "cpu"):
                copies[id(tensor)] = _on_host(tensor, storages)
            copies.setdefault(id(tensor), tensor)
    events = accelerator.record_events(devices)

    def wait() -> None:
        for event in events:
            event.synchronize()

    return copy.deepcopy(tree, copies), wait


def write_state(state: Mapping[str, Any], file: Any) -> None:
    """Writes `state` so that `torch.load` reads it."""
    import torch

    torch.save(dict(state), file)


def has_safetensors() -> bool:
    """Whether the package safetensors is installed: a script's own environment may do without it."""
    return importlib.util.find_spec("safetensors") is not None


def safetensors(weights: Mapping[str, "torch.Tensor"], *, metadata: Mapping[str, str] | None = None) -> bytes:
    """Returns the file `model.safetensors` of `weights`. Names that share memory get a copy each.

    `metadata`: texts for the file's header.
    """
    from safetensors.torch import save

    return save(on_their_own(weights), metadata=None if metadata is None else dict(metadata))


def on_their_own(weights: Mapping[str, "torch.Tensor"]) -> "dict[str, torch.Tensor]":
    """Returns the tensors in host memory as the format safetensors takes them, which has no two names for one memory.

    Only names that share memory get a copy each.
    """
    tensors: dict[str, torch.Tensor] = {}
    seen: set[int] = set()
    for name, value in weights.items():
        tensor = value.detach().cpu().contiguous()
        storage = tensor.untyped_storage().data_ptr()
        tensors[name] = tensor.clone() if storage in seen else tensor
        seen.add(storage)
    return tensors


def _tensors(tree: Any) -> "Iterator[torch.Tensor]":
    import torch

    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, (Mapping, list, tuple)):
        for item in tree.values() if isinstance(tree, Mapping) else tree:
            yield from _tensors(item)


def _on_host(tensor: "torch.Tensor", storages: "dict[tuple[object, ...], torch.UntypedStorage]") -> "torch.Tensor":
    """Returns a copy of `tensor` in host memory, on a copy of its whole storage.

    `storages` holds the copies of storages, by the device, address and size of the original.
    """
    import torch

    plain = tensor.detach().resolve_conj().resolve_neg()
    if type(plain) is not torch.Tensor or plain.layout is not torch.strided or plain.is_quantized:
        return plain.to("cpu", copy=True)
    storage = plain.untyped_storage()
    key = (storage.device, storage.data_ptr(), storage.nbytes())
    if key not in storages:
        storages[key] = _copied(storage)
    return torch.empty(0, dtype=plain.dtype).set_(storages[key], plain.storage_offset(), plain.size(), plain.stride())


def _copied(storage: "torch.UntypedStorage") -> "torch.UntypedStorage":
    import torch

    elsewhere = accelerator.is_accelerator(storage.device)
    source = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
    target = torch.empty(source.numel(), dtype=torch.uint8, pin_memory=elsewhere)
    return target.copy_(source, non_blocking=elsewhere).untyped_storage()
