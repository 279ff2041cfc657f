"""Reads the metrics of MLflow's local stores.

Below `mlruns` a run has a file for each metric, `metrics/KEY`, with a line for each value: the time in milliseconds,
the value, and since MLflow 1.0 the step (github.com/mlflow/mlflow, mlflow/store/tracking/file_store.py). `mlflow.db`,
which newer versions make instead, is a database of SQLite with a table `metrics`
(mlflow/store/tracking/dbmodels/models.py).
"""

import contextlib
import math
import sqlite3

from torchyard.contract.attempts.events import LAST_TIME_US
from worker.curves.parsed import LAST_STEP, MALFORMED, SHORTER, STEP, Notice, Parsed, Part, Point

MOST_ROWS = 20_000
"""Lines or rows of one answer."""
_LONGEST_LINE = 4096
_INSTRUCTIONS = 100_000
_MOST_CALLS = 1000
"""A query of a purpose-made database ends after so many times so many instructions."""
_LONGEST_KEY = 1000
_ROWS = (
    "SELECT rowid, substr(CAST(key AS BLOB), 1, ?), CAST(value AS REAL), CAST(timestamp AS INTEGER), "
    "CAST(step AS INTEGER), CAST(is_nan AS INTEGER) FROM main.metrics WHERE rowid > ? ORDER BY rowid LIMIT ?"
)


def parse_lines(part: Part) -> Parsed:
    """Returns the values in a part of a metric's file. A line without an end waits."""
    parsed = Parsed(part.offset)
    end = part.data.rfind(b"\n") + 1
    if not end and len(part.data) > _LONGEST_LINE:
        end = len(part.data)
        parsed.notices.append(Notice(MALFORMED, "a line has no end"))
        parsed.offset += end
        return parsed
    for number, line in enumerate(part.data[:end].splitlines(keepends=True)):
        if number == MOST_ROWS:
            parsed.more = True
            break
        parsed.offset += len(line)
        _add_line(line, part.metric, parsed)
    return parsed


def parse_database(part: Part) -> Parsed:
    """Returns the values that a database has behind a row, without running anything that it defines."""
    parsed = Parsed(part.offset)
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.execute("PRAGMA temp_store = MEMORY")
        database.execute("PRAGMA trusted_schema = OFF")
        database.execute("PRAGMA cell_size_check = ON")
        calls = iter(range(_MOST_CALLS))
        database.set_progress_handler(lambda: next(calls, None) is None, _INSTRUCTIONS)
        try:
            database.deserialize(part.data)
            kinds = database.execute("SELECT type FROM main.sqlite_master WHERE name = 'metrics'").fetchall()
            if kinds != [("table",)]:
                return parsed
            (last,) = database.execute("SELECT coalesce(max(rowid), 0) FROM main.metrics").fetchone()
            if last < parsed.offset:
                parsed.notices.append(Notice(SHORTER))
                parsed.offset = 0
            for row in database.execute(_ROWS, (_LONGEST_KEY, parsed.offset, MOST_ROWS)):
                parsed.offset = row[0]
                _add_row(*row[1:], since_ms=part.since_ms, parsed=parsed)
            parsed.more = parsed.offset < last
        except (sqlite3.Error, OverflowError, ValueError, TypeError) as error:
            parsed.notices.append(Notice(MALFORMED, str(error)))
    return parsed


def _add_line(line: bytes, metric: str, parsed: Parsed) -> None:
    words = line.split()
    try:
        _add(metric, int(words[2]) if len(words) > 2 else 0, float(words[1]), int(words[0]), parsed)
    except (ValueError, IndexError):
        parsed.notices.append(Notice(MALFORMED, "a line has no time, value and step"))


def _add_row(
    key: bytes | None,
    value: float | None,
    time: int | None,
    step: int | None,
    is_nan: int | None,
    *,
    since_ms: int,
    parsed: Parsed,
) -> None:
    if key is not None and (time or 0) >= since_ms:
        number = math.nan if is_nan or value is None else value
        _add(key.decode("utf-8", "surrogateescape"), step or 0, number, time or 0, parsed)


def _add(metric: str, step: int, value: float, time_ms: int, parsed: Parsed) -> None:
    if not 0 <= step <= LAST_STEP:
        parsed.notices.append(Notice(STEP, str(step)[:40]))
        return
    parsed.points.append(Point(metric, step, value, min(max(time_ms * 1000, 0), LAST_TIME_US)))
