"""The protocol of remote workers: what each verb sends and answers, as JSON, by `POST /v1/worker/VERB`.

Both sides import it: what a field may be stands here alone. A number that is not finite travels as `NaN` or `Infinity`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from store.worker.records import (
    NOTHING_BEGUN,
    ArtifactFacts,
    AttemptFacts,
    AttemptSecrets,
    Batch,
    Begun,
    CheckpointFacts,
    Claim,
    EarlierAttempt,
    HostOffer,
    InitialFacts,
    KeepOrder,
    KnownJob,
    NewArtifact,
    Orders,
    Pass,
    Prepared,
    Registered,
    Room,
    Wanted,
)
from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.cluster.devices import DeviceReport, EnvironmentReport, StartsReport
from torchyard.contract.states import EndReason, JobState, Reason
from torchyard.contract.telemetry.views import LiveLine

PROTOCOL = "1"
"""The version of all that stands here. It rises when one side would misread the other."""
PROTOCOL_HEADER = "Torchyard-Worker-Protocol"
BOOT_HEADER = "Torchyard-Worker-Boot"
"""The boot of the worker's host: two hosts with one token are told apart by it."""
PREFIX = "/v1/worker"
EVENTS = "events"
HEARTBEAT_S = 15.0
"""Seconds after the last event until the stream of wake-ups sends a comment, which keeps it open."""

_SMALL, _LARGE = 1 << 20, 32 << 20

T = TypeVar("T")
A = TypeVar("A", bound="Asked")

Id = Annotated[str, Field(max_length=100)]
Text = Annotated[str, Field(max_length=4096)]
Number = Annotated[int, Field(ge=0, lt=2**31)]
Large = Annotated[int, Field(ge=0, lt=2**63)]
Ids = Annotated[Sequence[Id], Field(max_length=1000)]
AttemptIds = Annotated[list[Large], Field(max_length=10_000)]
Devices = Annotated[Sequence[DeviceReport], Field(max_length=5000)]


class Asked(BaseModel):
    """What a verb sends. A field that is not known here is refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, ser_json_inf_nan="constants")


class Answered(BaseModel, Generic[T]):
    """What a verb answers. A field of a newer service is ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, ser_json_inf_nan="constants")

    answer: T


class Nothing(Asked):
    pass


class RegisterAsked(Asked):
    name: Annotated[str, Field(min_length=1, max_length=255)]
    offer: HostOffer


class Sample(Asked):
    """The devices as they were `age_s` seconds before the request was sent."""

    age_s: Annotated[float, Field(ge=0, le=60, allow_inf_nan=False)]
    devices: Devices


class Beat(Asked):
    samples: Annotated[list[Sample], Field(max_length=3)]
    """The oldest first. Empty: nothing was observed since the last heartbeat."""
    starts: StartsReport
    attempts: AttemptIds
    """Those whose leases are renewed."""


class BeatAnswered(Asked):
    model_config = ConfigDict(extra="ignore")

    orders: Orders
    owned: list[int]
    """Those of the attempts that the worker still owns."""


class PassAsked(Asked):
    devices: Devices
    running: AttemptIds
    """The attempts that the worker carries out."""


class ClaimAsked(Asked):
    claim: Claim


class ChangeAsked(ClaimAsked):
    change: Prepared | EnvironmentReport | Reason | Begun


class AppendAsked(ClaimAsked):
    batch: Batch
    seq: Large
    begun: Begun = NOTHING_BEGUN


class ShowAsked(Asked):
    lines: Annotated[list[LiveLine], Field(max_length=1000)]


class StacksAsked(ClaimAsked):
    requested_at: Large
    taken_at: Large
    ranks: Annotated[list[dict[str, Any]], Field(max_length=10_000)]


class EndAsked(ClaimAsked):
    report: ExitReport
    requested_stops: Annotated[list[EndReason], Field(max_length=100)]
    begun: Begun = NOTHING_BEGUN


class JobAsked(Asked):
    job_id: Id


class JobsAsked(Asked):
    job_ids: Ids


class EarlierAsked(JobAsked):
    before: Number


class CountAsked(ClaimAsked):
    reason: EndReason
    since: Number
    why: Text


class MessagesAsked(JobAsked):
    attempt: Number


class CheckpointAsked(JobAsked):
    checkpoint_id: Id


class RemovedAsked(JobAsked):
    attempt: Number
    names: Annotated[list[Text], Field(max_length=100_000)]


class OrdersAsked(Asked):
    limit: Annotated[int, Field(ge=1, le=100)]


class KeepAsked(Asked):
    order: KeepOrder
    new: Annotated[list[NewArtifact], Field(max_length=10_000)]
    copied: Large


class KeepAnswerAsked(Asked):
    order: KeepOrder
    refused: Annotated[str, Field(max_length=10_000)] | None


class OwnerAsked(Asked):
    owner: Text


class SizesAsked(Asked):
    sizes: Annotated[dict[Id, Large], Field(max_length=100_000)]


class FilesAnswered(Asked):
    model_config = ConfigDict(extra="ignore")

    checkpoints: list[CheckpointFacts]
    artifacts: Sequence[ArtifactFacts]


@dataclass(frozen=True)
class Verb(Generic[A, T]):
    """One verb. `most`: bytes of what is sent."""

    name: str
    asked: type[A]
    answered: type[Answered[T]]
    most: int = _SMALL

    @property
    def path(self) -> str:
        return f"{PREFIX}/{self.name}"


REGISTER = Verb("register", RegisterAsked, Answered[Registered])
HEARTBEAT = Verb("heartbeat", Beat, Answered[BeatAnswered], 8 << 20)
ORDERS = Verb("orders", Nothing, Answered[Orders])
CLAIMS = Verb("claims", PassAsked, Answered[Pass], 4 << 20)
OPEN = Verb("open", Nothing, Answered[list[Claim]])
READ = Verb("read", ClaimAsked, Answered[AttemptFacts])
WANTED = Verb("wanted", ClaimAsked, Answered[Wanted])
CHANGE = Verb("change", ChangeAsked, Answered[None])
APPEND = Verb("append", AppendAsked, Answered[frozenset[str]], _LARGE)
SHOW = Verb("show", ShowAsked, Answered[None])
STACKS = Verb("stacks", StacksAsked, Answered[None], 4 << 20)
END = Verb("end", EndAsked, Answered[JobState], 4 << 20)
ROOM = Verb("room", JobAsked, Answered[Room])
SECRETS = Verb("secrets", JobAsked, Answered[AttemptSecrets])
KEEP_ORDERS = Verb("keep-orders", OrdersAsked, Answered[list[KeepOrder]])
KEEP = Verb("keep", KeepAsked, Answered[None], 8 << 20)
KEEP_ANSWER = Verb("keep-answer", KeepAnswerAsked, Answered[None])
ATTEMPTS = Verb("history/attempts", EarlierAsked, Answered[list[EarlierAttempt]])
ENDED = Verb("history/ended", CountAsked, Answered[int])
MESSAGES = Verb("history/messages", MessagesAsked, Answered[list[str]])
CHECKPOINTS = Verb("history/checkpoints", JobAsked, Answered[list[CheckpointFacts]])
CHECKPOINT = Verb("history/checkpoint", CheckpointAsked, Answered[CheckpointFacts | None])
FILES = Verb("history/files", JobAsked, Answered[FilesAnswered])
INITIAL = Verb("history/initial", JobAsked, Answered[InitialFacts | None])
CAPTURED = Verb("history/captured", JobAsked, Answered[list[str]])
PUBLISHED = Verb("history/published", ClaimAsked, Answered[list[str]])
REMOVED = Verb("history/removed", RemovedAsked, Answered[set[str]], 8 << 20)
KNOWN = Verb("folders/known", JobsAsked, Answered[dict[str, KnownJob]])
DELETED = Verb("folders/deleted", JobsAsked, Answered[list[str]])
OWNERS = Verb("folders/owners", Nothing, Answered[set[str]])
SPECS = Verb("folders/specs", OwnerAsked, Answered[list[Mapping[str, Any]]])
SIZES = Verb("folders/sizes", SizesAsked, Answered[None], 8 << 20)
