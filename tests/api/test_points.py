"""The points of a series in JSON, written from columns."""

import math

import numpy as np
from pydantic import TypeAdapter

from api.curves import encoding
from api.present.times import time
from store.output.series_columns import SeriesColumns
from torchyard.contract.telemetry.views import PointView, SeriesView

VALUES = [0.5, -0.0, 1e-7, 1e300, 5e-324, math.nan, math.inf, -math.inf, 1 / 3, 2.0**60]
TIMES = [0, 1, 999_999, 1_000_000, 1_700_000_000_500_000, 1_700_000_000_000_000, 1_700_000_000_000_010]


def test_series_are_written_as_their_views_are() -> None:
    count = 4500  # more than are written at once
    rows = [(2**62 + place, VALUES[place % 10], TIMES[place % 7], place % 3 + 1) for place in range(count)]
    views = [PointView(step=step, value=value, time=time(at), attempt=attempt) for step, value, at, attempt in rows]
    steps, values, times, attempts = (list(column) for column in zip(*rows, strict=True))
    found = SeriesColumns(
        np.array(steps, dtype=np.int64),
        np.array(values, dtype=np.float64),
        np.array(times, dtype=np.int64),
        np.array(attempts, dtype=np.int64),
    )
    parts = {"a": slice(0, 3), 'ü "quoted" \\': slice(3, 3), "none": slice(3, 4), "val/loss": slice(4, count)}
    written = encoding.series([(key, found.at(part)) for key, part in parts.items()])
    expected = [SeriesView(key=key, points=views[part]) for key, part in parts.items()]
    assert b"[%b]" % written == TypeAdapter(list[SeriesView]).dump_json(expected)


def test_the_source_of_a_series_is_told() -> None:
    nothing = np.array([], dtype=np.int64)
    found = SeriesColumns(nothing, np.array([], dtype=np.float64), nothing, nothing, source="tensorboard")
    expected = SeriesView(key="a", points=[], source="tensorboard")
    assert encoding.series([("a", found)]) == expected.model_dump_json().encode()
    assert encoding.series([]) == b""
