"""The JSON of what a run shows: pictures, histograms, tables, texts and confusion matrices."""

from datetime import datetime
from typing import Literal

from torchyard.contract.media.kinds import MediaKind, MediaPart
from torchyard.contract.wire.view import Page, View


class PictureView(View):
    """A picture. `width` and `height` are those that its header says."""

    media_type: Literal["image/png", "image/jpeg", "image/webp"]
    size: int
    sha256: str
    width: int
    height: int


class HistogramView(View):
    """How many values lie between neighbouring edges: there is one edge more than counts."""

    edges: list[float]
    counts: list[float]
    note: str | None = None
    """What was left out; null if that is nothing. So it is of the other kinds."""


class TableView(View):
    columns: list[str]
    rows: list[list[str | int | float | bool | None]]
    note: str | None = None


class TextView(View):
    text: str
    expected: str | None = None
    """What the text should be, if the run says it."""
    note: str | None = None


class ConfusionView(View):
    """`matrix[t][p]` counts what is of class `t` and was taken for `p`."""

    classes: list[str]
    matrix: list[list[float]]
    note: str | None = None


class MediaView(View):
    """What a run showed at a step. An image has the part `image`; an overlay also `truth`, `predicted`, or both."""

    id: str
    key: str
    kind: MediaKind
    step: int
    number: int
    """Counts those of the same key and step, from 0."""
    attempt: int
    caption: str | None
    classes: list[str] | None
    """What the values of masks mean, from 0. 255 is no class."""
    parts: dict[MediaPart, PictureView]
    data: HistogramView | TableView | TextView | ConfusionView | None
    """Null of an image and an overlay."""
    created_at: datetime


class MediaKeyView(View):
    """What the job has of one key and kind."""

    key: str
    kind: MediaKind
    count: int
    steps: list[int]
    """In order. Of more than 1000, some."""
    numbers: int
    """The most items of one step."""


class MediaPage(Page[MediaView]):
    """Items by key, step and number. `keys` says what the job has, whatever was asked for; empty if it was left out."""

    keys: list[MediaKeyView]
