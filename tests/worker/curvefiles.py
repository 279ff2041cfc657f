"""Writes files of wandb and MLflow as these do, and reads files with curves."""

import json
from pathlib import Path
import sqlite3
import struct
from typing import Any
import zlib

from store.output.facts import MetricPoint
from tests.worker.eventfiles import nested, varint
from worker.curves import parsing
from worker.curves.child import Parser
from worker.curves.following import CurveFiles, CurvesRead

_BLOCK = 1 << 15


class Direct:
    """Parses in this process, as the child does."""

    def __init__(self) -> None:
        self.questions = 0
        self._answer = b""

    def ask(self, question: bytes) -> None:
        self.questions += 1
        self._answer = parsing.answered(question)

    def answer(self, wait_s: float) -> bytes:
        return self._answer

    def close(self) -> None: ...


def files_of(root: Path, **named: Any) -> CurveFiles:
    parser: Parser = named.pop("parser", None) or Direct()
    return CurveFiles(root, parser=parser, **named)


def points_of(found: CurvesRead) -> list[MetricPoint]:
    return [point for points in found.points.values() for point in points]


def rest(files: CurveFiles, offsets: dict[str, int], *, final: bool = True) -> list[tuple[str, int, float]]:
    """Reads until there is nothing new, and keeps the offsets as the store does."""
    found: list[tuple[str, int, float]] = []
    while (part := files.read(offsets, final=final)).offsets or files.unfinished:
        offsets.update(part.offsets)
        found += [(point.key, point.step, point.value) for point in points_of(part)]
    return found


def history(step: int, values: dict[str, object], *, time: float = 1.5, nested_keys: bool = True) -> bytes:
    """Returns a record of wandb with what `run.log` was given."""
    items = {**values, "_timestamp": time, "_step": step}
    content = b"".join(
        nested(1, nested(2 if nested_keys else 1, key.encode()) + nested(16, json.dumps(value).encode()))
        for key, value in items.items()
    )
    return b"\x08" + varint(step + 1) + nested(2, content + nested(2, b"\x08" + varint(step)))


def wandb_log(*records: bytes) -> bytes:
    """Returns a file of wandb with these records."""
    written = bytearray(b":W&B\xe1\xbe\x00")
    for record in records:
        rest, begun = record, False
        while rest or not begun:
            left = _BLOCK - len(written) % _BLOCK
            if left < 7:
                written += bytes(left)
                continue
            part, rest = rest[: left - 7], rest[left - 7 :]
            kind = (3 if rest else 4) if begun else (2 if rest else 1)
            written += struct.pack("<IHB", zlib.crc32(part, zlib.crc32(bytes([kind]))), len(part), kind) + part
            begun = True
    return bytes(written)


class Database:
    """A database as MLflow makes it: the table that has the metrics."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.connection = sqlite3.connect(path)
        self.connection.execute(
            "CREATE TABLE IF NOT EXISTS metrics (key VARCHAR(250) NOT NULL, value FLOAT NOT NULL, timestamp BIGINT "
            "NOT NULL, run_uuid VARCHAR(32) NOT NULL, step BIGINT DEFAULT '0' NOT NULL, is_nan BOOLEAN DEFAULT '0' "
            "NOT NULL, CONSTRAINT metric_pk PRIMARY KEY (key, timestamp, step, run_uuid, value, is_nan))"
        )
        self.connection.commit()

    def log(self, key: str, value: float, *, step: object, time: int = 1500, is_nan: bool = False) -> None:
        row = (key, value, time, "0" * 32, step, is_nan)
        self.connection.execute("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", row)
        self.connection.commit()


def mlflow_run(root: Path, name: str = "0" * 32) -> Path:
    """Makes the folder of a run, and returns that of its metrics."""
    run = root / "mlruns" / "0" / name
    (run / "metrics").mkdir(parents=True)
    (run / "meta.yaml").write_text("run_id: x\n")
    return run / "metrics"
