"""Counts the operations and functions that a training step calls. The machine's load does not change the counts."""

from collections.abc import Mapping, Sequence
import sys
from types import FrameType, TracebackType
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class Operations(TorchDispatchMode):
    """Counts the operations (`aten`) of this thread and of its backward passes, while it is entered."""

    count = 0

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.count += func.namespace == "aten"
        return func(*args, **(kwargs or {}))


class PythonCalls:
    """Counts the calls of functions that this thread's Python code makes, those of C included, while it is entered."""

    count = 0

    def __enter__(self) -> "PythonCalls":
        sys.setprofile(self._add)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        sys.setprofile(None)

    def _add(self, frame: FrameType, event: str, argument: object) -> None:
        self.count += event in {"call", "c_call"}
