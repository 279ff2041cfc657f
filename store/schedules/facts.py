"""What is asked of schedules, and what is due of them. What a schedule is, its views say."""

from dataclasses import dataclass

from store.jobs.submission import KeyedRequest
from store.team.callers import Caller
from torchyard.contract.schedules import Schedule
from torchyard.contract.spec import Spec
from torchyard.contract.team import Visibility


@dataclass(frozen=True)
class NewSchedule:
    """A job spec with a `schedule`. `visibility`: the default visibility, for a spec that sets none.

    `keyed`: the request, if it has an idempotency key.
    """

    spec: Spec
    schedule: Schedule
    caller: Caller
    visibility: Visibility
    keyed: KeyedRequest | None = None


@dataclass(frozen=True)
class Due:
    """What a controller is to do for a schedule: submit a run, or cancel the job that a run has replaced."""

    schedule_id: str
    replaced: str | None
