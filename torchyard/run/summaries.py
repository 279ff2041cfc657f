"""Histograms, tables, texts and confusion matrices of what a script gives, cut to what an item may have."""

from collections.abc import Callable, Iterable, Mapping, Sequence
import math
import sys
from typing import Any

from torchyard.contract.media.data import NOTE_LENGTH, Histogram, Table, cell, size_of, whole
from torchyard.contract.media.kinds import CLASS_LENGTH, DATA_BYTES, MOST_BINS, MOST_CLASSES, MOST_COLUMNS
from torchyard.contract.wire.text import storable

_LONGEST_CELL = 1000
"""Characters of a text in a table."""
_ROOM = DATA_BYTES - NOTE_LENGTH * 4
"""Bytes of the data besides its note."""

_LARGEST = 1e300
"""The largest edge: the difference of two must be a number."""
_WIDE = 1e37
"""From this range on float32 is too short."""

Data = dict[str, Any]


def histogram(values: Any, *, bins: int) -> Data:
    """Returns how many of the values lie between edges. `values`: numbers, or `(edges, counts)`.

    Raises TypeError and ValueError.
    """
    if not 1 <= bins <= MOST_BINS:
        raise ValueError(f"a histogram has 1 to {MOST_BINS} bins, not {bins}")
    if isinstance(values, tuple) and len(values) == 2 and all(map(_has_length, values)):
        edges, counts = (_numbers(part) for part in values)
        return Histogram(edges=edges, counts=counts).to_dict()
    low, high, count, left_out, counted = _counter(values)
    note = f"{left_out} of {count + left_out} values are no finite numbers, and are left out" if left_out else None
    if not count:
        return Histogram(edges=[0.0, 1.0], counts=[0.0], note=note or "there are no values").to_dict()
    low, high = max(low, -_LARGEST), min(high, _LARGEST)
    if high - low < sys.float_info.min:
        low, high = low - 0.5, max(low + 0.5, math.nextafter(low, math.inf))
    edges = [low + (high - low) * number / bins for number in range(bins)] + [high]
    return Histogram(edges=edges, counts=counted(low, high, bins), note=note).to_dict()


def table(columns: Sequence[Any], rows: Iterable[Sequence[Any]]) -> Data:
    """Returns a table, of which as many rows are kept as there is room for. Raises ValueError and TypeError."""
    names = [str(name)[:CLASS_LENGTH] for name in columns]
    if len(names) > MOST_COLUMNS:
        raise ValueError(f"a table has at most {MOST_COLUMNS} columns, not {len(names)}")
    listed = [list(row) for row in rows]
    wrong = next((row for row in listed if len(row) != len(names)), None)
    if wrong is not None:
        raise ValueError(f"a row of {len(wrong)} values does not fit {len(names)} columns")
    kept: list[list[Any]] = []
    left = _ROOM - size_of({"columns": names, "rows": []})
    for row in listed:
        values = [_cell(value) for value in row]
        left -= size_of({"": values})
        if left < 0:
            break
        kept.append(values)
    long = any(isinstance(value, str) and len(value) > _LONGEST_CELL for row in listed[: len(kept)] for value in row)
    notes = [f"the first {len(kept)} of {len(listed)} rows"] if len(kept) < len(listed) else []
    notes += [f"texts are cut to {_LONGEST_CELL} characters"] if long else []
    return Table(columns=names, rows=kept, note="; ".join(notes) or None).to_dict()


def text(content: str, *, expected: str | None = None) -> Data:
    """Returns a text, and what it should be, of each of which the beginning is kept if it is long."""
    if expected is None:
        kept, note = _beginning(content, _ROOM)
        return {"text": kept, "note": note}
    kept, note = _beginning(content, _ROOM // 2)
    wanted, cut = _beginning(expected, _ROOM // 2)
    notes = [note, cut and f"{cut} of what is expected"]
    return {"text": kept, "expected": wanted, "note": "; ".join(filter(None, notes)) or None}


def confusion(matrix: Any, *, classes: Sequence[Any] | None) -> Data:
    """Returns a matrix: of many classes, those that are mistaken most. Raises TypeError and ValueError."""
    rows = [_numbers(row) for row in (matrix.tolist() if hasattr(matrix, "tolist") else matrix)]
    names = [str(number) for number in range(len(rows))] if classes is None else [str(name) for name in classes]
    if len(names) != len(rows) or any(len(row) != len(rows) for row in rows):
        raise ValueError(f"a confusion matrix has a row and a column for each of its {len(names)} classes")
    if any(not math.isfinite(value) or value < 0 for row in rows for value in row):
        raise ValueError("a confusion matrix has counts: finite numbers, not below 0")
    names = [name[:CLASS_LENGTH] for name in names]
    mistakes = [sum(row) + sum(other[at] for other in rows) - 2 * row[at] for at, row in enumerate(rows)]
    ranked = sorted(range(len(rows)), key=lambda at: -mistakes[at])
    count = min(len(rows), MOST_CLASSES, math.isqrt(_ROOM // 2))  # a number takes two bytes or more
    while size_of(data := _part(names, rows, sorted(ranked[:count]))) > _ROOM:
        count = count * 3 // 4
    note = None if count == len(rows) else f"{count} of {len(rows)} classes: those with most mistakes"
    return {**data, "note": note}


def _part(names: Sequence[str], rows: Sequence[Sequence[float]], kept: Sequence[int]) -> Data:
    matrix = [[whole(rows[row][column]) for column in kept] for row in kept]
    return {"classes": [names[at] for at in kept], "matrix": matrix}


def _beginning(content: str, room: int) -> tuple[str, str | None]:
    """Returns as much of the text as has room as data, in bytes, and a note if that is not all."""
    plain = storable(str(content))
    # A character takes a byte or more as JSON, so that no more of a text can fit.
    if size_of({"expected": plain[: room + 1]}) <= room:
        return plain, None
    low, high = 0, min(len(plain), room)
    while low < high:
        middle = (low + high + 1) // 2
        fits = size_of({"expected": plain[:middle]}) <= room
        low, high = (middle, high) if fits else (low, middle - 1)
    return plain[:low], f"the first {low} of {len(plain)} characters"


def _cell(value: Any) -> Any:
    plain = value.item() if hasattr(value, "item") and not isinstance(value, str) else value
    if not isinstance(plain, str | int | float | bool | None):
        plain = str(plain)
    return storable(plain)[:_LONGEST_CELL] if isinstance(plain, str) else cell(plain)


def _has_length(value: Any) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, (str, bytes, Mapping))


def _numbers(values: Any) -> list[float]:
    listed = values.tolist() if hasattr(values, "tolist") else values
    return [float(value) for value in listed]


Counter = Callable[[float, float, int], list[float]]


def _counter(values: Any) -> tuple[float, float, int, int, Counter]:
    """Returns the least and the greatest value, how many are finite, how many are not, and what counts them."""
    if hasattr(values, "detach"):
        return _counter_of_tensor(values.detach().flatten().float())
    if hasattr(values, "__array__"):
        return _counter_of_array(values)
    given = [float(value) for value in values]
    finite = [value for value in given if math.isfinite(value)]

    def count(low: float, high: float, bins: int) -> list[float]:
        counts = [0.0] * bins
        for value in finite:
            place = (value - low) / (high - low) * bins
            counts[min(max(int(place), 0), bins - 1)] += 1
        return counts

    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    return low, high, len(finite), len(given) - len(finite), count


def _counter_of_tensor(values: Any) -> tuple[float, float, int, int, Counter]:
    finite = values[values.isfinite()]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
    left_out = len(values) - len(finite)

    def count(low: float, high: float, bins: int) -> list[float]:
        return (finite.double() if high - low > _WIDE else finite).histc(bins, low, high).tolist()

    return low, high, len(finite), left_out, count


def _counter_of_array(values: Any) -> tuple[float, float, int, int, Counter]:
    import numpy as np

    flat = np.asarray(values, dtype="float64").ravel()
    finite = flat[np.isfinite(flat)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)

    def count(low: float, high: float, bins: int) -> list[float]:
        return np.histogram(finite, bins, (low, high))[0].astype("float64").tolist()

    return low, high, len(finite), len(flat) - len(finite), count
