"""Labels of jobs: keys with values, by which users find and group them."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field, JsonValue
from pydantic_core import to_json

from torchyard.contract.bounds import LABEL_KEY, LONGEST_LABEL, MOST_LABELS

MOST_LABELS_BYTES = 4096
"""The most bytes of a job's labels as JSON. Each row of a list includes them."""
_KEYS_ALONE: dict[str, JsonValue] = {"additionalProperties": False}

LabelKey = Annotated[str, Field(pattern=LABEL_KEY)]
LabelValue = Annotated[str, Field(max_length=LONGEST_LABEL)]


def wrong_labels(labels: Mapping[str, str]) -> str | None:
    """Returns what forbids that a job has these labels; None if nothing does."""
    if len(labels) > MOST_LABELS:
        return f"has {len(labels)} labels: a job has at most {MOST_LABELS}"
    if (size := len(to_json(labels))) > MOST_LABELS_BYTES:
        return f"has {size} bytes of labels: those of a job have at most {MOST_LABELS_BYTES}, as JSON"
    return None


def _few_bytes(labels: dict[str, str]) -> dict[str, str]:
    if (wrong := wrong_labels(labels)) is not None:
        raise ValueError(wrong)
    return labels


Labels = Annotated[
    dict[LabelKey, LabelValue],
    Field(max_length=MOST_LABELS, json_schema_extra=_KEYS_ALONE),
    AfterValidator(_few_bytes),
]
LabelChanges = Annotated[
    dict[LabelKey, LabelValue | None],
    Field(min_length=1, max_length=2 * MOST_LABELS, json_schema_extra=_KEYS_ALONE),
]
