"""The bodies of requests about jobs: changes, batches, and actions on one or many."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from torchyard.contract.attempts.keeping import KeptPattern
from torchyard.contract.bounds import MOST_KEEP
from torchyard.contract.errors import FieldError, InvalidRequest
from torchyard.contract.jobs.filters import JobFilter
from torchyard.contract.jobs.notes import MOST_NOTES_BYTES, Notes
from torchyard.contract.spec.dev import Dev
from torchyard.contract.spec.labels import LabelChanges, Labels
from torchyard.contract.spec.log_metrics import MetricPattern
from torchyard.contract.spec.resources import Devices
from torchyard.contract.spec.spec import JobName, Priority
from torchyard.contract.team.roles import Visibility
from torchyard.contract.wire.findings import field_errors
from torchyard.contract.wire.schema import (
    NO_CONTROLS,
    UNSET,
    Schema,
    parse_request,
)


class JobPatch(Schema):
    """What can be changed of a submitted job. What is left out stays; `labels` replaces the whole map."""

    name: JobName = UNSET
    labels: Labels = UNSET
    priority: Priority = UNSET
    visibility: Visibility = UNSET
    notes: Notes = UNSET
    notes_before: Annotated[
        str,
        Field(
            max_length=MOST_NOTES_BYTES,
            description="the notes from which `notes` was written: if the job has others by now, nothing changes (409)",
        ),
    ] = UNSET
    archived: Annotated[bool, Field(description="lists leave an archived job out; only one that has ended")] = UNSET

    @model_validator(mode="after")
    def _guards_new_notes(self) -> Self:
        if "notes_before" in self.model_fields_set and "notes" not in self.model_fields_set:
            raise ValueError("`notes_before` is only for a change of `notes`")
        return self


def parse_patch(raw: object) -> JobPatch:
    """The change in `raw` (parsed JSON). Raises InvalidRequest, naming each field."""
    return parse_request(JobPatch, raw)


MOST_ACTIONS = 1000
"""The most jobs on which one request acts."""
MOST_JOBS = 10_000
"""The most jobs of a batch."""
MOST_ATOMIC_JOBS = 500
"""The most jobs of a batch of which all are stored, or none."""
MOST_BATCH_BYTES = 16 << 20


_MOST_BATCH_KEYS = 10


JobAction = Literal["cancel", "pause", "resume", "delete", "archive", "unarchive", "label", "star", "unstar"]


class NewKeep(Schema):
    """What to store of a job's working folder."""

    paths: Annotated[list[KeptPattern], Field(min_length=1, max_length=MOST_KEEP)] = Field(
        description="paths or patterns of files and folders there"
    )


class NewLogCurves(Schema):
    """What to find in the lines that are stored of a job."""

    pattern: MetricPattern = Field(description="as one of `metrics.patterns` of a job spec")


class ResumeRequest(Schema):
    """How to resume a job."""

    devices: Devices | None = Field(
        default=None, description="of each node, in place of those that the spec asks for; null: as many as before"
    )


class RetryRequest(Schema):
    """How to retry a job."""

    model_config = {"populate_by_name": True}

    from_: Annotated[str, Field(min_length=1, max_length=100, pattern=NO_CONTROLS)] | None = Field(
        default=None,
        alias="from",
        description="the checkpoint to go on from: `best`, `latest`, `epoch-N`, `step-N` or an id; null: the newest",
    )
    devices: Devices | None = Field(
        default=None, description="of each node, in place of those that the spec asks for; null: as many as before"
    )
    fresh: bool = Field(
        default=False,
        description="whether it begins with the code alone: without folder, files and checkpoints of the job",
    )
    dev: Dev | None = Field(
        default=None, description="it runs no program and waits, to be worked in; only for a job that is a script"
    )

    @model_validator(mode="after")
    def _check_fresh(self) -> Self:
        if self.fresh and self.from_ is not None:
            raise ValueError("fresh begins with the code alone, so leave from out")
        return self


class JobActions(Schema):
    """An action on many jobs: those with these ids, or those that a filter matches."""

    model_config = {"json_schema_extra": {"oneOf": [{"required": ["ids"]}, {"required": ["filter"]}]}}

    action: JobAction
    ids: Annotated[list[Annotated[str, Field(max_length=100)]], Field(max_length=MOST_ACTIONS)] = UNSET
    filter: JobFilter = UNSET
    labels: Annotated[LabelChanges, Field(description="`label` only: labels to set; null removes one")] = UNSET
    now: bool = Field(default=False, description="`cancel` only: kill running jobs without waiting for a checkpoint")
    dry_run: bool = Field(default=False, description="only answer how many jobs match, and what their stop would cost")

    @model_validator(mode="after")
    def _has_one_choice(self) -> Self:
        if len({"ids", "filter"} & self.model_fields_set) != 1:
            raise ValueError("send either `ids` or `filter`")
        return self

    @model_validator(mode="after")
    def _labels_are_for_label(self) -> Self:
        if ("labels" in self.model_fields_set) != (self.action == "label"):
            raise ValueError("send `labels` with the action `label`, and with no other")
        return self

    @model_validator(mode="after")
    def _only_a_cancel_is_forced(self) -> Self:
        if self.now and self.action != "cancel":
            raise ValueError("`now` is only for `cancel`")
        return self


class JobBatch(Schema):
    """Jobs to submit together. Their specs are not looked at yet."""

    jobs: Annotated[list[Any], Field(min_length=1, max_length=MOST_JOBS, description="a job spec each")]
    atomic: bool = Field(
        default=False, description=f"store all jobs or none: {MOST_ATOMIC_JOBS} at most. Otherwise each is its own"
    )

    @model_validator(mode="after")
    def _is_one_transaction(self) -> Self:
        if self.atomic and len(self.jobs) > MOST_ATOMIC_JOBS:
            raise ValueError(f"an atomic batch has at most {MOST_ATOMIC_JOBS} jobs, and this one {len(self.jobs)}")
        return self


def parse_batch(raw: object) -> JobBatch:
    """Returns the batch in `raw` (parsed JSON), whose specs may be anything. Raises InvalidRequest."""
    if isinstance(raw, dict) and len(raw) > _MOST_BATCH_KEYS:
        raise InvalidRequest(
            "the batch is not valid", errors=(FieldError("", "send `jobs`, and `atomic` if you like"),)
        )
    try:
        return JobBatch.model_validate(raw)
    except ValidationError as error:
        raise InvalidRequest("the batch is not valid", errors=field_errors(error, JobBatch)) from None
