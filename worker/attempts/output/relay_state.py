"""How far the output of an attempt is stored."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

_CAPTURED_STEP = "captured/step"
_DONE = {name: f"{name}/stored" for name in ("artifacts", "kept", "unmatched", "unmatched_at_end")}


@dataclass(frozen=True)
class RelayState:
    """The attempt's row keeps it as JSON, so that a later daemon continues where this one has left off."""

    offsets: Mapping[str, int] = field(default_factory=dict[str, int])
    """By name of a file: the bytes of it that are stored."""
    captured_step: int | None = None
    """The newest step that the script reported, if its files are captured."""
    done: frozenset[str] = frozenset()
    """What was done once: `artifacts` and `kept`, when all files there are stored or said to be left out; `unmatched`
    and `unmatched_at_end`, when it was said which patterns match nothing."""

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> "RelayState":
        """Returns what the attempt's row keeps."""
        numbers = {str(name): int(number) for name, number in stored.items()}
        step = numbers.pop(_CAPTURED_STEP, None)
        done = frozenset(name for name, key in _DONE.items() if numbers.pop(key, 0))
        return cls(numbers, step, done)

    def as_json(self) -> dict[str, int]:
        """Returns what the attempt's row keeps: the offsets, and the rest under names that no file has."""
        step = {} if self.captured_step is None else {_CAPTURED_STEP: self.captured_step}
        return {**self.offsets, **step, **{_DONE[name]: 1 for name in sorted(self.done)}}

    def with_done(self, name: str) -> "RelayState":
        """Returns the state after something was done."""
        return replace(self, done=self.done | {name})
