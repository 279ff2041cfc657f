"""For which other jobs a job waits, and what each of them must end as."""

from typing import Annotated, Literal

from pydantic import Field

from torchyard.contract.states import JobState
from torchyard.contract.wire.schema import Schema

Ending = Literal["succeeded", "finished", "failed"]


class After(Schema):
    """A job that must end before this one starts."""

    job: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
            description="id or name of the job. A name means your newest job with it, else the newest that you may "
            "read; in an `atomic` batch it may be another job of the batch",
        ),
    ]
    on: Ending = Field(
        default="succeeded",
        description="how the job must end; `finished` accepts every end. If it ends differently, this job fails",
    )


def is_met(on: str, state: JobState) -> bool:
    """Returns whether a job in this state has ended as `on` asks for."""
    return state.terminal if on == "finished" else state == on


def is_failed(on: str, state: JobState) -> bool:
    """Returns whether a job in this state can no longer end as `on` asks for."""
    return state.terminal and not is_met(on, state)


def unmet(name: str, on: str, state: JobState) -> str:
    """Says of a job for which `is_failed` holds why another one does not run."""
    ended = f"{name} {'was cancelled' if state is JobState.CANCELLED else state}"
    return f"{ended}; this job needs it to succeed" if on == JobState.SUCCEEDED else f"not needed: {ended}"
