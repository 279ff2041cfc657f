"""Draws series as text."""

import math
import shutil
from typing import Any

import plotext

from torchyard.contract.telemetry.views import SeriesView
from torchyard.host import terminal

_HEIGHT = 16


def draw(series: SeriesView) -> str:
    """Draws the series over its steps, as wide as the terminal. NaN and infinite points are omitted."""
    points = [point for point in series.points if math.isfinite(point.value)]
    if not points:
        return f"{series.key}: all {len(series.points)} points are NaN or infinite"
    figure: Any = plotext.figure
    figure.clear.all()
    # The default theme paints a background, which does not fit the terminal's own colours.
    figure.theme("colorless")
    figure.plot_size(shutil.get_terminal_size().columns, _HEIGHT)
    steps, values = [point.step for point in points], [point.value for point in points]
    figure.draw(figure.signal(steps, values, marker="braille").lines())
    figure.title(f"{series.key}  {terminal.number(values[-1])} at step {steps[-1]}")
    text = str(plotext.uncolorize(figure.build().string()))
    return "\n".join(line.rstrip() for line in text.splitlines())
