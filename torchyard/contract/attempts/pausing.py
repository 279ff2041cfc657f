"""The epoch or the step after which an attempt pauses by itself: a trial of a sweep waits there for its promotion."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Unit = Literal["epochs", "steps"]


@dataclass(frozen=True)
class PausePoint:
    """So many epochs or optimizer steps of the whole run, as a job's `pause_at` has them: `{"epochs": 3}`."""

    unit: Unit
    number: int

    @classmethod
    def of(cls, document: Mapping[str, int]) -> "PausePoint":
        """Returns the point that a job's row has. Raises ValueError for anything else."""
        return cls.parse(":".join(f"{unit}:{number}" for unit, number in document.items()))

    @classmethod
    def parse(cls, text: str) -> "PausePoint":
        """Returns the point that the environment of a rank has. Raises ValueError for anything else."""
        match text.split(":"):
            case ["epochs" | "steps" as unit, number] if number.isdecimal() and int(number) > 0:
                return cls(unit, int(number))
            case _:
                raise ValueError(f"{text!r} is not a point to pause at, such as epochs:3")

    @property
    def document(self) -> dict[str, int]:
        """What the row has."""
        return {self.unit: self.number}

    @property
    def variable(self) -> str:
        """What the environment of a rank has: `epochs:3`."""
        return f"{self.unit}:{self.number}"

    def is_reached(self, *, step: int, epochs: int) -> bool:
        """Whether a run that has done so many steps and whole epochs is there."""
        return (epochs if self.unit == "epochs" else step) >= self.number

    def __str__(self) -> str:
        return f"{self.number} {self.unit if self.number != 1 else self.unit.removesuffix('s')}"
