"""The metrics of a job, as lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from torchyard.contract.telemetry.views import SeriesView


@dataclass(frozen=True)
class Series:
    """The points of one metric, by step. All lists have one length.

    Attributes:
        key: The name of the metric.
        steps: Optimizer steps.
        values: The values; NaN and infinities are floats.
        times: When each point was logged.
        source: `run`, `tensorboard`, `wandb`, `mlflow` or `log`.
    """

    key: str
    steps: Sequence[int]
    values: Sequence[float]
    times: Sequence[datetime]
    source: str = "run"

    @classmethod
    def of(cls, view: SeriesView) -> Series:
        """Returns a series of an answer."""
        points = view.points
        steps, values = [point.step for point in points], [point.value for point in points]
        return cls(view.key, steps, values, [point.time for point in points], view.source)


class Metrics(Mapping[str, Series]):
    """The metrics of a job, by key.

    Example:
        >>> job.metrics("train/loss")
        Metrics(train/loss: 2 points)
    """

    def __init__(self, series: Sequence[Series]) -> None:
        self._series = {item.key: item for item in series}

    def __getitem__(self, key: str) -> Series:
        return self._series[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._series)

    def __len__(self) -> int:
        return len(self._series)

    def __repr__(self) -> str:
        return f"Metrics({', '.join(f'{key}: {len(item.steps)} points' for key, item in self.items())})"

    def frame(self) -> Any:
        """Returns a pandas.DataFrame with a row for each step and a column for each metric. A missing point is NaN.

        Raises:
            ImportError: pandas is not installed.
        """
        import pandas as pd  # pyright: ignore[reportMissingImports, reportMissingTypeStubs] - not a dependency

        columns = {key: pd.Series(item.values, index=list(item.steps), dtype="float64") for key, item in self.items()}
        frame = pd.DataFrame(columns).sort_index()
        frame.index.name = "step"
        return frame
