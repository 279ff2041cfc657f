"""Encodes curves in JSON, a block of values at a time: no other thread runs while a block is encoded."""

from collections.abc import Sequence
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from store.queries.series_columns import SeriesColumns
from torchyard.contract.views.curves import CurveColumns, CurvesView, CurveView

_BLOCK = 2_000
_VALUES: TypeAdapter[list[Any]] = TypeAdapter(list[Any], config=ConfigDict(ser_json_inf_nan="strings"))


def encoded(view: CurvesView) -> bytes:
    """Returns the view in JSON, as `model_dump_json` writes it."""
    rest = view.model_dump_json(exclude={"series"}).encode()
    curves = b",".join(_curve(curve) for curve in view.series)
    return b'{"series":[%b],%b' % (curves, rest[1:])


def points(found: SeriesColumns) -> bytes:
    """Returns the points as `PointView`s in JSON, separated by commas, without making an object of each."""
    blocks = (found.at(slice(begin, begin + _BLOCK)) for begin in range(0, len(found.steps), _BLOCK))
    return b",".join(_points(block) for block in blocks)


def _points(block: SeriesColumns) -> bytes:
    import numpy as np

    steps, attempts = block.steps.tolist(), block.attempts.tolist()
    values = _VALUES.dump_json(block.values.tolist())[1:-1].decode().split(",")
    times: list[str] = np.datetime_as_string(block.times.astype("datetime64[us]")).tolist()
    rows = [
        f'{{"step":{step},"value":{value},"time":"{time}Z","attempt":{attempt}}}'
        for step, value, time, attempt in zip(steps, values, times, attempts, strict=True)
    ]
    # Nothing else here has such a text: all others are numbers.
    return ",".join(rows).replace('.000000Z"', 'Z"').encode()


def _curve(curve: CurveView) -> bytes:
    columns = ((name, getattr(curve.columns, name)) for name in CurveColumns.model_fields)
    shown = b",".join(b'"%b":%b' % (name.encode(), _column(values)) for name, values in columns)
    return b'{"columns":{%b},%b' % (shown, curve.model_dump_json(exclude={"columns"}).encode()[1:])


def _column(values: Sequence[float | None] | None) -> bytes:
    if values is None:
        return b"null"
    blocks = (values[begin : begin + _BLOCK] for begin in range(0, len(values), _BLOCK))
    return b"[%b]" % b",".join(_VALUES.dump_json(list(block))[1:-1] for block in blocks)
