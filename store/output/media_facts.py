"""What runs show: pictures, histograms, tables, texts and confusion matrices. Times are microseconds."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from store.output.pages_facts import FactPage


@dataclass(frozen=True, slots=True)
class PictureFacts:
    """A picture whose blob is stored. `part` is a `torchyard.contract.media.MediaPart`."""

    part: str
    media_type: str
    size: int
    sha256: str
    width: int
    height: int


@dataclass(frozen=True)
class NewMedia:
    """An item that an attempt has written."""

    key: str
    kind: str
    step: int
    number: int
    _: KW_ONLY
    caption: str | None = None
    classes: Sequence[str] | None = None
    data: Mapping[str, Any] | None = None
    pictures: Sequence[PictureFacts] = ()


@dataclass(frozen=True, slots=True)
class MediaFacts:
    """An item that is stored."""

    id: str
    key: str
    kind: str
    step: int
    number: int
    attempt: int
    caption: str | None
    classes: Sequence[str] | None
    data: Mapping[str, Any] | None
    created_at: int
    pictures: Sequence[PictureFacts] = ()


@dataclass(frozen=True)
class MediaFilter:
    """Of which keys and kinds, and from which step to which. Empty and None: all."""

    keys: Sequence[str] = ()
    kinds: Sequence[str] = ()
    from_step: int | None = None
    to_step: int | None = None


@dataclass(frozen=True)
class MediaPlace:
    """The place of an item in the list of a job's."""

    key: str
    step: int
    number: int


@dataclass(frozen=True)
class MediaKeyFacts:
    """What a job has of one key and kind."""

    key: str
    kind: str
    count: int
    steps: Sequence[int]
    """All, in order."""
    numbers: int
    """The most items of one step."""


@dataclass(frozen=True)
class ShownMedia:
    """Some items of a job, and what it has in all."""

    page: FactPage[MediaFacts]
    keys: Sequence[MediaKeyFacts]
