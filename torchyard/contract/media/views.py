"""The JSON of what a run shows: pictures, histograms, tables, texts and confusion matrices."""

from datetime import datetime
from typing import Literal

from torchyard.contract.media.data import Confusion, Histogram, Table, Text
from torchyard.contract.media.kinds import MediaKind, MediaPart
from torchyard.contract.wire.view import Page, View


class PictureView(View):
    """A picture. `width` and `height` come from its header."""

    media_type: Literal["image/png", "image/jpeg", "image/webp"]
    size: int
    sha256: str
    width: int
    height: int


class MediaView(View):
    """A media item that a job logged at a step. An image has the part `image`; an overlay also has `truth`,
    `predicted`, or both.
    """

    id: str
    key: str
    kind: MediaKind
    step: int
    number: int
    """Number of the item among those of the same key and step, from 0."""
    attempt: int
    caption: str | None
    classes: list[str] | None
    """Names of the mask values, from 0. 255 is no class."""
    parts: dict[MediaPart, PictureView]
    data: Histogram | Table | Text | Confusion | None
    """The content; null for an image or overlay."""
    created_at: datetime


class MediaKeyView(View):
    """The items of one key and kind."""

    key: str
    kind: MediaKind
    count: int
    steps: list[int]
    """The steps, in order. At most 1,000, evenly chosen."""
    numbers: int
    """Maximum number of items at one step."""


class MediaPage(Page[MediaView]):
    """A page of media by key, step and number. `keys` lists all keys of the job, whatever the filter."""

    keys: list[MediaKeyView]
