"""Changes of a submitted job."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from torchyard.contract.labels import Labels
from torchyard.contract.notes import MOST_NOTES_BYTES, Notes
from torchyard.contract.requests import parse_request
from torchyard.contract.schema import UNSET, Schema
from torchyard.contract.spec import JobName, Priority
from torchyard.contract.team import Visibility


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
