"""Which jobs a list shows, and on which jobs an action acts."""

from collections.abc import Sequence
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, ConfigDict, Field, WithJsonSchema

from torchyard.contract.states import JobState
from torchyard.contract.wire.schema import NO_CONTROLS, NO_NUL, UNSET, Schema
from torchyard.contract.wire.wording import allowing

_LABEL = allowing(r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}:[^\x00]{0,200}$", "a label as key:value")
_INSTANT = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


def _states(value: Any) -> Any:
    return [_state(item) for item in value] if isinstance(value, list) else value


def _state(value: Any) -> Any:
    return JobState(value) if isinstance(value, str) and value in set(JobState) else value


def _label(text: str) -> str:
    if re.fullmatch(_LABEL, text) is None:
        raise ValueError("write a label as key:value")
    return text


def _instant(text: Any) -> Any:
    if isinstance(text, str) and _INSTANT.fullmatch(text) is None:
        raise ValueError("write a time with its zone, such as 2026-01-31T12:00:00Z (in a query, write + as %2B)")
    return text


JobSort = Literal[
    "created", "name", "owner", "state", "priority", "started", "finished",
    "-created", "-name", "-owner", "-state", "-priority", "-started", "-finished",
]  # fmt: skip
"""How a list of jobs is sorted. A leading `-` reverses."""

Text = Annotated[str, Field(max_length=200, pattern=NO_NUL)]
Label = Annotated[str, AfterValidator(_label), WithJsonSchema({"type": "string", "pattern": _LABEL})]
Instant = Annotated[AwareDatetime, BeforeValidator(_instant)]


class JobFilter(Schema):
    """A filter for jobs. All its conditions must hold."""

    state: Annotated[
        list[JobState], BeforeValidator(_states), Field(max_length=20, description="only these states")
    ] = UNSET
    q: Annotated[
        str,
        Field(
            max_length=200,
            pattern=NO_CONTROLS,
            description="a part of the name, id, owner, a label's value, or the first 4,000 characters of the "
            "notes; case does not matter",
        ),
    ] = UNSET
    name: Annotated[Text, Field(description="only this exact name")] = UNSET
    owner: Annotated[Text, Field(description="only jobs of this user; default: all users whose jobs you may read")] = (
        UNSET
    )
    trainer: Annotated[Text, Field(description="only this trainer")] = UNSET
    init_from: Annotated[Text, Field(description="only jobs that start from a checkpoint of the job with this id")] = (
        UNSET
    )
    retry_of: Annotated[Text, Field(description="only retries of the job with this id")] = UNSET
    sweep: Annotated[Text, Field(description="only trials of the sweep with this id")] = UNSET
    schedule: Annotated[Text, Field(description="only runs of the schedule with this id")] = UNSET
    label: Annotated[
        list[Label], Field(max_length=32, description="`key:value`; a job must have all labels that you name")
    ] = UNSET

    archived: Annotated[
        bool, Field(description="true: only archived jobs; default: only jobs that are not archived")
    ] = UNSET
    starred: Annotated[bool, Field(description="true: only jobs with your star; false: only jobs without it")] = UNSET

    @property
    def labels(self) -> Sequence[tuple[str, str]]:
        """The labels that a job must have."""
        return [(key, value) for key, _, value in (item.partition(":") for item in self.label or ())]


class JobQuery(JobFilter):
    """The same for a list. It is a part of a URL's query: its values may be texts, and other keys are not its own."""

    model_config = ConfigDict(extra="ignore", strict=False)

    created_after: Annotated[Instant, Field(description="only jobs created after this time (RFC 3339)")] = UNSET
    created_before: Annotated[Instant, Field(description="only jobs created before this time (RFC 3339)")] = UNSET
