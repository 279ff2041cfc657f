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
    """Changes of a job. Omitted fields stay; `labels` replaces all labels."""

    name: JobName = UNSET
    labels: Labels = UNSET
    priority: Priority = UNSET
    visibility: Visibility = UNSET
    notes: Notes = UNSET
    notes_before: Annotated[
        str,
        Field(
            max_length=MOST_NOTES_BYTES,
            description="the notes that you read before; if the job has different notes, the answer is 409 and "
            "nothing changes",
        ),
    ] = UNSET
    archived: Annotated[
        bool, Field(description="true: hide the job from lists; only a finished job can be archived")
    ] = UNSET

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
    """The files of a job's working folder to store."""

    paths: Annotated[list[KeptPattern], Field(min_length=1, max_length=MOST_KEEP)] = Field(
        description="paths or patterns of files and folders"
    )


class NewLogCurves(Schema):
    """A pattern to find in a job's log."""

    pattern: MetricPattern = Field(description="a regular expression, as in `metrics.patterns` of a job spec")


class ResumeRequest(Schema):
    """How to resume a job."""

    devices: Devices | None = Field(default=None, description="devices per node for the new attempt; null: as before")


class RetryRequest(Schema):
    """How to retry a job."""

    model_config = {"populate_by_name": True}

    from_: Annotated[str, Field(min_length=1, max_length=100, pattern=NO_CONTROLS)] | None = Field(
        default=None,
        alias="from",
        description="checkpoint to resume from: `best`, `latest`, `epoch-N`, `step-N` or an id; null: the newest",
    )
    devices: Devices | None = Field(default=None, description="devices per node for the new attempt; null: as before")
    fresh: bool = Field(
        default=False,
        description="true: start with the code only, without the working folder, files and checkpoints of the old job",
    )
    dev: Dev | None = Field(
        default=None, description="run no program: the job waits for you to work in it (scripts only)"
    )

    @model_validator(mode="after")
    def _check_fresh(self) -> Self:
        if self.fresh and self.from_ is not None:
            raise ValueError("fresh begins with the code alone, so leave from out")
        return self


class JobActions(Schema):
    """An action on many jobs. Select them by `ids` or by a `filter`."""

    model_config = {"json_schema_extra": {"oneOf": [{"required": ["ids"]}, {"required": ["filter"]}]}}

    action: JobAction
    ids: Annotated[list[Annotated[str, Field(max_length=100)]], Field(max_length=MOST_ACTIONS)] = UNSET
    filter: JobFilter = UNSET
    labels: Annotated[LabelChanges, Field(description="`label` only: the labels to set; null removes a label")] = UNSET
    now: bool = Field(default=False, description="`cancel` only: kill running jobs at once, without a checkpoint")
    dry_run: bool = Field(
        default=False, description="change nothing; answer the number of jobs and the work that would be lost"
    )

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
    """Jobs to submit together."""

    jobs: Annotated[list[Any], Field(min_length=1, max_length=MOST_JOBS, description="the job specs")]
    atomic: bool = Field(
        default=False,
        description=f"store all jobs or none (at most {MOST_ATOMIC_JOBS}); false: an error does not stop other jobs",
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
