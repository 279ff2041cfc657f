"""Names the metrics that files with curves have.

A tag is the metric's key, with `_` for control characters. Of an event file in a folder below another one with event
files, or in a folder named like a split of the data (`train`, `val`, …), the folder's name and `/` come before it.
"""

from collections.abc import Collection
import re

from torchyard.contract.wire.text import METRIC_KEY_LENGTH, storable
from worker.curves.kinds import EVENTS, kind_of
from worker.host.looks import Parts
from worker.host.mask import Mask

_MOST_MASKED = 4096
"""Characters of a tag in which secrets are masked, before its start is shown."""
_SPLITS = frozenset({"train", "training", "val", "valid", "validation", "dev", "eval", "evaluation", "test"})
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def key_of(tag: str, parts: Parts, folders: Collection[Parts], mask: Mask) -> str | None:
    """Returns the key of a metric in the file `parts`, or None if its tag is too long, empty or not text.

    `folders`: those with event files.
    """
    if len(tag) > METRIC_KEY_LENGTH or (not tag.isascii() and not _is_text(tag)):
        return None
    text = mask.text(tag)
    prefix = _prefix(parts[:-1], folders, mask) if kind_of(parts) is EVENTS else ""
    key = _CONTROL.sub("_", f"{prefix}/{text}" if prefix and not text.startswith(f"{prefix}/") else text)
    return key if text and len(key) <= METRIC_KEY_LENGTH else None


def start_of(tag: str, mask: Mask) -> str:
    """Returns the start of a tag, to be shown."""
    text = tag[:_MOST_MASKED].encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return storable(mask.text(text)[:60])


def _is_text(tag: str) -> bool:
    try:
        tag.encode()
    except UnicodeEncodeError:
        return False
    return True


def _prefix(folder: Parts, folders: Collection[Parts], mask: Mask) -> str:
    above = (folder[:depth] for depth in range(len(folder)))
    top = next((outer for outer in above if outer in folders), None)
    if top is not None:
        return storable(mask.text("/".join(folder[len(top) :])))
    return folder[-1] if folder and folder[-1].lower() in _SPLITS else ""
