"""Checks what a remote worker says that an attempt has written, as the worker itself checks what the attempt wrote."""

from collections.abc import Iterable
import json
import re
from typing import Any

from store.output.facts import LOG
from store.worker.records import Batch, MetricPoint, NewArtifact, NewLines
from torchyard.contract.errors import InvalidRequest
from torchyard.contract.files.paths import KEPT, check_path, check_paths
from torchyard.contract.wire.text import METRIC_KEY, METRIC_KEY_LENGTH, storable

_KEY = re.compile(METRIC_KEY)
_SOURCES = frozenset({"tensorboard", "wandb", "mlflow", LOG})
_STREAMS = frozenset({"stdout", "stderr"})
_EVENTS = frozenset({"message", "progress"})
_LEVELS = frozenset({"info", "warning", "error"})
_MOST_RANK = 1 << 20
_MOST_STEP = 2**63 - 1
_LONGEST_LINE = 1 << 20
_MOST_DATA = 64 << 10
"""Bytes of an event, of progress and of what a job says of its model, as JSON."""
_MOST_PACKAGES = 10_000
_LONGEST_PACKAGE = 200
_MOST_OFFSETS = 100_000
_LONGEST_NAME = 1000


def check_batch(batch: Batch) -> None:
    """Raises InvalidRequest for what no attempt can have written, or what cannot be stored."""
    _require(batch.curves.keys() <= _SOURCES, "curves are of a known source")
    for points in (batch.points, batch.logged, *batch.curves.values()):
        _check_points(points)
    _check_lines(batch.lines)
    for event in batch.events:
        _require(event.type in _EVENTS, f"an event is of {sorted(_EVENTS)}")
        _require(event.type != "message" or _is_message(event.data), "a message has a level and a text")
        _check_json(event.data, "an event")
    for document, what in ((batch.progress, "progress"), (batch.card, "a card")):
        _check_json(document or {}, what)
    packages = batch.packages or {}
    _require(len(packages) <= _MOST_PACKAGES, f"an attempt has at most {_MOST_PACKAGES} packages")
    _check_texts([*packages, *packages.values()], _LONGEST_PACKAGE)
    _require(len(batch.offsets) <= _MOST_OFFSETS, "an attempt has few offsets")
    _check_texts(batch.offsets, _LONGEST_NAME)
    _require(all(0 <= offset <= _MOST_STEP for offset in batch.offsets.values()), "an offset is not below zero")
    _require(0 <= batch.lag_us <= _MOST_STEP, "a lag is not below zero")
    for checkpoint in batch.checkpoints:
        _check_texts([checkpoint.name], _LONGEST_NAME)
        _check_files(file.path for file in checkpoint.files)
        _require(0 <= checkpoint.saved_at <= _MOST_STEP, "a checkpoint was saved at some time")
    check_artifacts(batch.artifacts)
    for item in batch.media:
        _check_texts([item.key, item.caption or "", *(item.classes or ())], _LONGEST_NAME)
        _require(0 <= item.step <= _MOST_STEP and 0 <= item.number < 2**31, "an item has a step and a number")
        _check_json(dict(item.data or {}), "an item")


def check_artifacts(new: Iterable[NewArtifact]) -> None:
    """Raises InvalidRequest for paths that no file of a job can have, and sizes below zero."""
    for item in new:
        _check_files([item.path.removeprefix(KEPT)])
        _require(0 <= item.size <= _MOST_STEP, "a file has a size")


def _check_points(points: Iterable[MetricPoint]) -> None:
    for point in points:
        is_key = len(point.key) <= METRIC_KEY_LENGTH and _KEY.fullmatch(point.key) is not None
        _require(is_key and 0 <= point.step <= _MOST_STEP, "a point has a key that can be shown, and a step")
        _require(0 <= point.time <= _MOST_STEP, "a point has a time")


def _check_lines(chunks: Iterable[NewLines]) -> None:
    for chunk in chunks:
        _require(chunk.stream in _STREAMS, f"lines are of {sorted(_STREAMS)}")
        _require(chunk.rank is None or 0 <= chunk.rank < _MOST_RANK, "lines are of a rank, or of the launcher")
        _check_texts(chunk.lines, _LONGEST_LINE)
        _require(not any("\n" in line for line in chunk.lines), "a line has no line end")


def _is_message(data: dict[str, Any]) -> bool:
    return data.get("level") in _LEVELS and isinstance(data.get("text"), str)


def _check_json(document: dict[str, Any], what: str) -> None:
    text = json.dumps(document, ensure_ascii=False)
    _require(len(text) <= _MOST_DATA, f"{what} has at most {_MOST_DATA} characters as JSON")
    _require("\\u0000" not in text, f"{what} has no NUL")


def _check_texts(texts: Iterable[str], longest: int) -> None:
    for text in texts:
        _require(len(text) <= longest and storable(text) == text, f"a text has at most {longest} characters and no NUL")


def _check_files(paths: Iterable[str]) -> None:
    listed = [*paths]
    try:
        for path in listed:
            check_path(path)
        check_paths(listed)
    except ValueError as error:
        raise InvalidRequest(f"a file {error}") from None


def _require(holds: bool, rule: str) -> None:
    if not holds:
        raise InvalidRequest(f"the service does not store this: {rule}")
