"""The lines that rank 0 appends to `events.jsonl`: what a training process says while it runs."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from torchyard.schema import MetricKey

_END_OF_TIME_US = 253_402_300_800_000_000  # the year 10000: no date can be later


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


Line = Annotated[Metric | Progress | CheckpointSaved | Message, Field(discriminator="type")]

LINE: TypeAdapter[Metric | Progress | CheckpointSaved | Message] = TypeAdapter(Line)
"""Parses one line: `LINE.validate_json(raw)`."""
