"""Requests that create jobs, and what it created."""

from dataclasses import dataclass

from store.attempts.facts import Inherits
from store.jobs.facts import DependencyFacts, JobFacts
from store.jobs.initial_weights_facts import InitialFacts
from store.output.checkpoints_facts import CheckpointFacts
from store.team.callers import Caller
from torchyard.contract.spec.dev import Dev
from torchyard.contract.spec.spec import Spec
from torchyard.contract.states import Reason
from torchyard.contract.team.roles import Visibility


@dataclass(frozen=True)
class KeyedRequest:
    """A request with its idempotency key. `fingerprint` is a digest of all that a repetition must not change."""

    owner: str
    key: str
    fingerprint: str

    @property
    def identity(self) -> tuple[str, str]:
        """The owner and the key: keys of different users are different."""
        return self.owner, self.key


@dataclass(frozen=True)
class TrialOf:
    """Which trial of a sweep a job is."""

    sweep_id: str
    number: int


@dataclass(frozen=True)
class ScheduledRun:
    """Which run of which schedule a job is: the one that was due then."""

    schedule_id: str
    due_at: int


@dataclass(frozen=True)
class Submission:
    """A job that a caller submits. `visibility`: the default visibility, for a spec that sets none.

    `run`: of a schedule, if the service submits it for its owner. `retry_of`: the job that it goes on with, of which
    the transaction has the row; `goes_on_from`: the checkpoint of that job from which it does, if it has one;
    `begins_with`: what it finds of that job in its working folder.
    `devices_before`: of a retry, how many of each node the retried job asked for.
    `initial`: what the spec's `init_from` names, once that is known.
    `after`: the jobs in the spec's `after`, once they are known; then `waits_for` says for which it waits, if it does.
    `job_id`: its id, where others have it already.
    """

    spec: Spec
    caller: Caller
    visibility: Visibility
    keyed: KeyedRequest | None = None
    retry_of: str | None = None
    goes_on_from: CheckpointFacts | None = None
    begins_with: Inherits | None = None
    devices_before: int | None = None
    initial: InitialFacts | None = None
    trial: TrialOf | None = None
    after: tuple[DependencyFacts, ...] | None = None
    waits_for: Reason | None = None
    job_id: str | None = None
    run: ScheduledRun | None = None


@dataclass(frozen=True)
class Retry:
    """A request to submit the spec of an ended job again, which goes on from a checkpoint of the job.

    `ref`: an id, `best`, `latest`, `epoch-N` or `step-N`; None for the newest, or the beginning if it has none.
    `devices`: of each node, in place of those in the spec. `fresh`: it begins with the code alone.
    `dev`: it waits in place of running the program.
    """

    job_id: str
    caller: Caller
    keyed: KeyedRequest | None = None
    ref: str | None = None
    trial: TrialOf | None = None
    devices: int | None = None
    fresh: bool = False
    dev: Dev | None = None


@dataclass(frozen=True)
class Prospect:
    """What would become of a job if it were submitted now."""

    reason: Reason | None
    """Why it would not start at once; None if it would."""
    position: int | None = None
    """From 1, in the queue; None if it would not be in it."""


@dataclass(frozen=True)
class Submitted:
    """A job that was created by this request or, if `replayed`, by an earlier one with the same key."""

    job: JobFacts
    replayed: bool = False
