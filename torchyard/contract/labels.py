"""Labels of jobs: keys with values, by which users find and group them."""

from typing import Annotated

from pydantic import Field, JsonValue

from torchyard.contract.wording import allowing

MOST_LABELS = 32
"""The most labels of a job."""
LABEL_KEY = allowing(
    r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$",
    "1 to 63 letters, digits, `.`, `_`, `/` and `-`, of which the first is a letter or a digit",
)
_KEYS_ALONE: dict[str, JsonValue] = {"additionalProperties": False}

LabelKey = Annotated[str, Field(pattern=LABEL_KEY)]
LabelValue = Annotated[str, Field(max_length=200)]
Labels = Annotated[dict[LabelKey, LabelValue], Field(max_length=MOST_LABELS, json_schema_extra=_KEYS_ALONE)]
LabelChanges = Annotated[
    dict[LabelKey, LabelValue | None],
    Field(min_length=1, max_length=2 * MOST_LABELS, json_schema_extra=_KEYS_ALONE),
]
