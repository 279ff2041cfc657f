"""The lines that rank 0 appends to `events.jsonl`: what a training process says while it runs."""

from dataclasses import dataclass, field
import json
from typing import Annotated, Any, Literal

from torchyard.contract.media.kinds import (
    CAPTION_LENGTH,
    CLASS_LENGTH,
    LARGEST_NUMBER,
    MOST_CLASSES,
    MediaKind,
    MediaPart,
)
from torchyard.contract.wire.codec import Record, at_most, between, json_number, matching, parse_object
from torchyard.contract.wire.text import METRIC_KEY, METRIC_KEY_LENGTH, unstorable

CARD_BYTES = 64 * 1024
"""Bytes of a card as JSON, at most."""

LAST_TIME_US = 253_402_300_799_999_999
"""The end of the year 9999: no date can be later."""

Time = Annotated[int, between(0, LAST_TIME_US)]
"""Microseconds since the epoch."""
MetricName = Annotated[str, matching(METRIC_KEY, "a text without control characters"), at_most(METRIC_KEY_LENGTH)]
Step = Annotated[int, between(0, 2**63 - 1)]
Epoch = Annotated[int, between(0, 2**31 - 1)]
FileName = Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", "letters, digits, . _ -")]
CheckpointName = FileName
"""The name of a checkpoint's folder."""


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return json_number(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("a whole number of a card must fit into 64 bits: write a larger one as text")
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list) else value


def _card(values: dict[str, Any]) -> dict[str, Any]:
    wrong = unstorable(values)
    if wrong is not None:
        raise ValueError(f"{wrong[0]}: {wrong[1]}")
    finite = {key: _finite(value) for key, value in values.items()}
    try:
        size = len(json.dumps(finite, ensure_ascii=False, separators=(",", ":")).encode())
    except TypeError as error:
        raise ValueError(f"a card holds what JSON can hold: {error}") from None
    if size > CARD_BYTES:
        raise ValueError(f"a card of {size} bytes is too large: it may have {CARD_BYTES}")
    return finite


PACKAGES_BYTES = 64 * 1024
"""Bytes of all packages of a job as JSON, at most."""
MOST_PACKAGES = 2000
PACKAGE_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
PACKAGE_VERSION = r"[A-Za-z0-9][A-Za-z0-9.+!_-]{0,99}"


def _packages(values: dict[str, str]) -> dict[str, str]:
    if (size := len(json.dumps(values))) > PACKAGES_BYTES:
        raise ValueError(f"packages of {size} bytes are too large: they may have {PACKAGES_BYTES}")
    return values


PackageValues = Annotated[
    dict[
        Annotated[str, matching(PACKAGE_NAME, "letters, digits, . _ -")],
        Annotated[str, matching(PACKAGE_VERSION, "letters, digits, . + ! _ -")],
    ],
    at_most(MOST_PACKAGES),
    _packages,
]
"""Versions by the names of packages."""

CardValues = Annotated[dict[MetricName, Any], at_most(200), _card]
"""What a card says: anything that JSON can hold, NaN and ±Inf as the strings `NaN`, `Infinity`, `-Infinity`."""


@dataclass(frozen=True, kw_only=True)
class _Line(Record):
    time: Time
    """When the rank wrote the line, by its host's clock."""


@dataclass(frozen=True, kw_only=True)
class Metric(_Line):
    """Values measured at one optimizer step."""

    type: Literal["metric"] = "metric"
    step: Step
    values: Annotated[dict[MetricName, float], at_most(1000)]


@dataclass(frozen=True, kw_only=True)
class Progress(_Line):
    """How far the run is. `total_steps` and `epochs` are null if the script does not say."""

    type: Literal["progress"] = "progress"
    step: Step
    total_steps: Step | None = None
    epoch: Epoch | None = None
    epochs: Epoch | None = None


@dataclass(frozen=True, kw_only=True)
class CheckpointSaved(_Line):
    """A checkpoint folder below `checkpoints/` has its manifest."""

    type: Literal["checkpoint"] = "checkpoint"
    name: CheckpointName


@dataclass(frozen=True, kw_only=True)
class Message(_Line):
    """A sentence for the people who watch the job."""

    type: Literal["message"] = "message"
    level: Literal["info", "warning", "error"] = "info"
    text: Annotated[str, at_most(10_000)]


@dataclass(frozen=True, kw_only=True)
class Card(_Line):
    """What the run is: its model's size, its data, its speed. The last one that a job wrote counts."""

    type: Literal["card"] = "card"
    values: CardValues


@dataclass(frozen=True, kw_only=True)
class Packages(_Line):
    """What rank 0 can import, as it is installed. The last one that a job wrote counts."""

    type: Literal["packages"] = "packages"
    values: PackageValues


@dataclass(frozen=True, kw_only=True)
class Remeasured(_Line):
    """What a checkpoint of the job measures when it is evaluated again, in one process after training."""

    type: Literal["remeasured"] = "remeasured"
    name: CheckpointName
    attempt: Annotated[int, between(0, 2**31 - 1)] | None = None
    """The attempt that saved it; None: the one that writes this line."""
    metrics: Annotated[dict[MetricName, float], at_most(1000)]


@dataclass(frozen=True, kw_only=True)
class Shown(_Line):
    """An item that the run shows. `files` lie in the folder `media`; `data` is as `contract.media.data` says."""

    type: Literal["media"] = "media"
    key: MetricName
    kind: MediaKind
    step: Step
    number: Annotated[int, between(0, LARGEST_NUMBER)] = 0
    caption: Annotated[str, at_most(CAPTION_LENGTH)] | None = None
    classes: Annotated[list[Annotated[str, at_most(CLASS_LENGTH)]], at_most(MOST_CLASSES)] | None = None
    files: dict[MediaPart, FileName] = field(default_factory=dict[MediaPart, str])
    data: dict[str, Any] | None = None


Line = Metric | Progress | CheckpointSaved | Message | Card | Packages | Remeasured | Shown

_KINDS: dict[str, type[Line]] = {
    "metric": Metric,
    "progress": Progress,
    "checkpoint": CheckpointSaved,
    "message": Message,
    "card": Card,
    "packages": Packages,
    "remeasured": Remeasured,
    "media": Shown,
}


def parse_line(raw: bytes | str) -> Line:
    """Parses one line of `events.jsonl`. Raises ValueError."""
    values = parse_object(raw)
    kind = _KINDS.get(str(values.get("type")))
    if kind is None:
        raise ValueError(f"type: must be one of {', '.join(_KINDS)}")
    return kind.from_dict(values)
