"""How far the output of an attempt is stored."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_CAPTURED_STEP = "captured/step"
_ARTIFACTS_STORED = "artifacts/stored"


@dataclass(frozen=True)
class RelayState:
    """The attempt's row keeps it as JSON, so that a later daemon continues where this one has left off."""

    offsets: Mapping[str, int] = field(default_factory=dict[str, int])
    """By name of a file: the bytes of it that are stored."""
    captured_step: int | None = None
    """The newest step that the script reported, if its files are captured."""
    artifacts_stored: bool = False
    """Whether all files in `artifacts` are stored, or said to be left out."""

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> "RelayState":
        """Returns what the attempt's row keeps."""
        numbers = {str(name): int(number) for name, number in stored.items()}
        step, artifacts = numbers.pop(_CAPTURED_STEP, None), numbers.pop(_ARTIFACTS_STORED, 0)
        return cls(numbers, step, bool(artifacts))

    def as_json(self) -> dict[str, int]:
        """Returns what the attempt's row keeps: the offsets, and the rest under names that no file has."""
        step = {} if self.captured_step is None else {_CAPTURED_STEP: self.captured_step}
        return {**self.offsets, **step, **({_ARTIFACTS_STORED: 1} if self.artifacts_stored else {})}
