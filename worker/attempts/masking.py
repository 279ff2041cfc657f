"""Masks the values of secrets in what an attempt wrote, before it is stored."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from store.worker.records import Batch, MetricPoint, NewCheckpoint, NewMedia
from torchyard.contract.attempts.events import Remeasured
from torchyard.contract.media.kinds import CUT
from worker.host.mask import Mask


def masked_batch(batch: Batch, mask: Mask) -> Batch:
    """Returns the batch with masked text. Whoever copies files leaves those out that have a secret in their path."""
    if not mask:
        return batch
    masked = replace(
        batch,
        lines=[replace(new, lines=[mask.text(line) for line in new.lines]) for new in batch.lines],
        events=[replace(event, data=_masked(event.data, mask)) for event in batch.events],
        card=_masked(batch.card, mask),
        packages=_masked(batch.packages, mask),
        checkpoints=[_masked_checkpoint(new, mask) for new in batch.checkpoints],
        media=[_masked_item(new, mask) for new in batch.media],
        remeasured=_masked_measures(batch.remeasured, mask),
    )
    masked.change_points(lambda points: _masked_points(points, mask))
    return masked


def _masked_points(points: list[MetricPoint], mask: Mask) -> list[MetricPoint]:
    keys = {key: mask.text(key) for key in {point.key for point in points}}
    if all(key == masked for key, masked in keys.items()):
        return points
    return [replace(point, key=keys[point.key]) for point in points]


def _masked_checkpoint(new: NewCheckpoint, mask: Mask) -> NewCheckpoint:
    manifest = replace(new.manifest, metrics=_masked(new.manifest.metrics, mask), card=_masked(new.manifest.card, mask))
    return replace(new, manifest=manifest)


def _masked_item(new: NewMedia, mask: Mask) -> NewMedia:
    """Whoever wrote the texts may have cut them anywhere."""

    def quoted(text: str) -> str:
        return f"{mask.quoted(text[:-1])}{CUT}" if text.endswith(CUT) else mask.quoted(text)

    # The keys of its data are ours: a secret may begin or end as one of them does.
    data = None if new.data is None else {name: _changed(value, quoted) for name, value in new.data.items()}
    caption, classes = _changed(new.caption, quoted), _changed(new.classes, quoted)
    return replace(new, key=mask.text(new.key), caption=caption, classes=classes, data=data)


def _masked_measures(event: Remeasured | None, mask: Mask) -> Remeasured | None:
    return None if event is None else replace(event, metrics=_masked(event.metrics, mask))


def _masked(value: Any, mask: Mask) -> Any:
    return _changed(value, mask.text)


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): _changed(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_changed(item, change) for item in value]
    return value
