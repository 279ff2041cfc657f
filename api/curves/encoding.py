"""Encodes curves in JSON, a block of values at a time: no other thread runs while a block is encoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, TypeAdapter
from pydantic_core import to_json

from store.output.series_columns import SeriesColumns
from torchyard.contract.telemetry.curves import CurveColumns, CurvesView, CurveView

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_BLOCK = 2_000
_VALUES: TypeAdapter[list[Any]] = TypeAdapter(list[Any], config=ConfigDict(ser_json_inf_nan="strings"))


def encoded(view: CurvesView) -> bytes:
    """Returns the view in JSON, as `model_dump_json` writes it."""
    rest = view.model_dump_json(exclude={"series"}).encode()
    curves = b",".join(_curve(curve) for curve in view.series)
    return b'{"series":[%b],%b' % (curves, rest[1:])


def series(parts: Sequence[tuple[str, SeriesColumns]]) -> bytes:
    """Returns series with their keys as `SeriesView`s in JSON, separated by commas, without making an object of each.

    Many short ones are encoded together, as each block takes a while, however few points it has.
    """
    rows = _rows([columns for _, columns in parts])
    shown: list[str] = []
    begin = 0
    for key, columns in parts:
        end = begin + len(columns.steps)
        points = ",".join(rows[begin:end])
        shown.append(f'{{"key":{to_json(key).decode()},"points":[{points}],"source":"{columns.source or "run"}"}}')
        begin = end
    return ",".join(shown).encode()


def _rows(parts: Sequence[SeriesColumns]) -> list[str]:
    """Returns all points, each as a `PointView` in JSON."""
    import numpy as np

    if not parts:
        return []
    steps, values, times, attempts = (
        np.concatenate([getattr(each, name) for each in parts]) for name in ("steps", "values", "times", "attempts")
    )
    texts = _times(times)
    rows: list[str] = []
    for begin in range(0, len(steps), _BLOCK):
        part = slice(begin, begin + _BLOCK)
        written = _VALUES.dump_json(values[part].tolist())[1:-1].decode().split(",")
        rows += [
            f'{{"step":{step},"value":{value},"time":"{time}Z","attempt":{attempt}}}'
            for step, value, time, attempt in zip(
                steps[part].tolist(), written, texts[part], attempts[part].tolist(), strict=True
            )
        ]
    return rows


def _times(times: NDArray[np.int64]) -> list[str]:
    """Returns the times as texts. Series that a script reports together have the same, which are written once."""
    import numpy as np

    different, indices = np.unique(times, return_inverse=True)
    texts: list[str] = []
    for begin in range(0, len(different), _BLOCK):
        block = different[begin : begin + _BLOCK].astype("datetime64[us]")
        texts += [text.removesuffix(".000000") for text in np.datetime_as_string(block).tolist()]
    return [texts[index] for index in indices.tolist()]


def _curve(curve: CurveView) -> bytes:
    columns = ((name, getattr(curve.columns, name)) for name in CurveColumns.model_fields)
    shown = b",".join(b'"%b":%b' % (name.encode(), _column(values)) for name, values in columns)
    return b'{"columns":{%b},%b' % (shown, curve.model_dump_json(exclude={"columns"}).encode()[1:])


def _column(values: Sequence[float | None] | None) -> bytes:
    if values is None:
        return b"null"
    blocks = (values[begin : begin + _BLOCK] for begin in range(0, len(values), _BLOCK))
    return b"[%b]" % b",".join(_VALUES.dump_json(list(block))[1:-1] for block in blocks)
