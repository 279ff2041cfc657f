"""Media: pictures, histograms, tables, texts and confusion matrices that a run shows, each at a key and a step."""

from typing import Literal

from torchyard.contract.wire.since311 import StrEnum

MediaPart = Literal["image", "truth", "predicted"]
"""The pictures of an item. `truth` and `predicted` are the masks of an overlay: each pixel is the number of a class."""


class MediaKind(StrEnum):
    IMAGE = "image"
    """One picture."""
    OVERLAY = "overlay"
    """A picture with one or two masks of it."""
    HISTOGRAM = "histogram"
    TABLE = "table"
    TEXT = "text"
    CONFUSION = "confusion"
    """How often each class was taken for each."""


MEDIA_TYPES = ("image/png", "image/jpeg", "image/webp")
"""The types of pictures. Never SVG, which is a program."""
PICTURE_BYTES = 8 << 20
"""Bytes of a picture, at most."""
PICTURE_PIXELS = 64_000_000
"""Pixels of a picture, at most."""
DATA_BYTES = 64 * 1024
"""Bytes of the data of an item as JSON, at most."""
LARGEST_NUMBER = 9_999
"""The highest number of an item among those of its key and step."""
CAPTION_LENGTH = 1000
"""Characters of a caption, at most."""
CUT = "…"
"""The end of a text that was cut."""
MOST_CLASSES = 1000
CLASS_LENGTH = 200
"""Characters of the name of a class, at most."""
MOST_BINS = 1000
"""Bins of a histogram, at most."""
MOST_COLUMNS = 100
"""Columns of a table, at most."""
IGNORED = 255
"""The value of a mask's pixels that belong to no class."""
