"""The lines that rank 0 appends to `events.jsonl`: what a training process says while it runs."""

import math
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, TypeAdapter
from pydantic_core import to_json

from torchyard.contract.schema import MetricKey, unstorable

CARD_BYTES = 64 * 1024

_END_OF_TIME_US = 253_402_300_800_000_000  # the year 10000: no date can be later


def _finite(value: JsonValue) -> JsonValue:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list) else value


def _card(values: dict[str, JsonValue]) -> dict[str, JsonValue]:
    wrong = unstorable(values)
    if wrong is not None:
        raise ValueError(f"{wrong[0]}: {wrong[1]}")
    finite = {key: _finite(value) for key, value in values.items()}
    size = len(to_json(finite))
    if size > CARD_BYTES:
        raise ValueError(f"a card of {size} bytes is too large: it may have {CARD_BYTES}")
    return finite


CardValues = Annotated[dict[MetricKey, JsonValue], Field(max_length=200), AfterValidator(_card)]
"""What a card says: anything that JSON can hold, NaN and ±Inf as the strings `NaN`, `Infinity`, `-Infinity`."""


class _Line(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, ser_json_inf_nan="strings")

    time: Annotated[int, Field(ge=0, lt=_END_OF_TIME_US)]
    """Microseconds since the epoch, by the rank's clock."""


class Metric(_Line):
    """Values measured at one optimizer step. NaN and ±Inf travel as the strings `NaN`, `Infinity`, `-Infinity`."""

    type: Literal["metric"] = "metric"
    step: Annotated[int, Field(ge=0, lt=2**63)]
    values: Annotated[dict[MetricKey, float], Field(max_length=1000)]


class Progress(_Line):
    """How far the run is. `total_steps` and `epochs` are null where the script does not say."""

    type: Literal["progress"] = "progress"
    step: Annotated[int, Field(ge=0, lt=2**63)]
    total_steps: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    epoch: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    epochs: Annotated[int, Field(ge=0, lt=2**31)] | None = None


class CheckpointSaved(_Line):
    """A checkpoint folder below `checkpoints/` has its manifest."""

    type: Literal["checkpoint"] = "checkpoint"
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]


class Message(_Line):
    """A sentence for the people who watch the job."""

    type: Literal["message"] = "message"
    level: Literal["info", "warning", "error"] = "info"
    text: Annotated[str, Field(max_length=10_000)]


class Card(_Line):
    """What the run is: its model's size, its data, its speed. The last one that a job wrote counts."""

    type: Literal["card"] = "card"
    values: CardValues


Line = Annotated[Metric | Progress | CheckpointSaved | Message | Card, Field(discriminator="type")]

LINE: TypeAdapter[Metric | Progress | CheckpointSaved | Message | Card] = TypeAdapter(Line)
"""Parses one line: `LINE.validate_json(raw)`."""
