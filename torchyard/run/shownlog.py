"""Writes what a run shows into its run directory: pictures as files, and a line for each item."""

from collections.abc import Callable, Iterable, Mapping, Sequence
import contextlib
import itertools
from pathlib import Path
import secrets
import time
from typing import Any

from torchyard.contract.attempts.events import Shown
from torchyard.contract.media.kinds import (
    CAPTION_LENGTH,
    CLASS_LENGTH,
    CUT,
    LARGEST_NUMBER,
    MOST_CLASSES,
    MediaKind,
    MediaPart,
)
from torchyard.contract.media.picture import TooLarge, picture_of
from torchyard.contract.wire.text import storable
from torchyard.run.eventlog import EventLog
from torchyard.run.values import check_names, whole

Files = Mapping[MediaPart, bytes]


class ShownLog:
    """Writes into `folder` and to the event log. `warn` is called once for each reason for which items are left out."""

    def __init__(self, folder: Path, events: EventLog, *, warn: Callable[[str], None]) -> None:
        self._folder = folder
        self._events = events
        self._warn = warn
        self._own = secrets.token_hex(4)  # another process of the attempt may have written there
        self._numbers = itertools.count(1)

    def add(
        self,
        key: str,
        kind: MediaKind,
        *,
        step: Any,
        number: Any = 0,
        caption: str | None = None,
        classes: Sequence[Any] | None = None,
        files: Files | None = None,
        data: dict[str, Any] | None = None,
    ) -> None:
        """Adds an item. Raises TypeError and ValueError for what cannot be shown."""
        check_names({key: None})
        values = {
            "time": time.time_ns() // 1000,
            "key": key,
            "kind": kind,
            "step": whole("step", step),
            "number": whole("number", number, most=LARGEST_NUMBER),
            "caption": None if caption is None else _cut(storable(str(caption)), CAPTION_LENGTH),
            "classes": None if classes is None else [_cut(storable(str(name)), CLASS_LENGTH) for name in classes],
            "data": data,
        }
        if classes is not None and len(classes) > MOST_CLASSES:
            raise ValueError(f"{key}: there are {len(classes)} classes: a picture may have {MOST_CLASSES}")
        names: dict[MediaPart, str] = {}
        try:
            for part, content in (files or {}).items():
                names[part] = self._write(part, content)
        except TooLarge as error:
            self._remove(names.values())
            self._warn(f"{kind} {key!r} was not logged, as it is too large: {error}")
        except ValueError as error:
            self._remove(names.values())
            raise ValueError(f"{kind} {key!r}: {error}") from None
        except OSError as error:  # training goes on without a picture
            self._remove(names.values())
            self._warn(f"{kind} {key!r} was not logged, as it cannot be written: {error.strerror}")
        else:
            self._events.shown(Shown.from_dict({**values, "files": names}))

    def _write(self, part: MediaPart, content: bytes) -> str:
        """Writes a picture, and returns the name of its file. Leaves nothing if it raises ValueError or OSError."""
        name = f"{self._own}-{next(self._numbers)}-{part}.{picture_of(content).suffix}"
        self._folder.mkdir(mode=0o700, exist_ok=True)
        try:
            with (self._folder / name).open("xb") as file:
                file.write(content)
        except OSError:
            self._remove([name])
            raise
        return name

    def _remove(self, names: Iterable[str]) -> None:
        """Removes files of an item that is not shown: on a full disk they would take what is left."""
        for name in names:
            with contextlib.suppress(OSError):
                (self._folder / name).unlink(missing_ok=True)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}{CUT}"
