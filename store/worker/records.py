"""What travels between a worker and the store: records of the verbs, and of the domains that they are about."""

from collections.abc import Sequence
from dataclasses import dataclass

from store.attempts.facts import (
    LEASE,
    NOTHING_BEGUN,
    AttemptFacts,
    AttemptSecrets,
    Begun,
    Claim,
    EarlierAttempt,
    Inherited,
    KeepOrder,
    KnownJob,
    NodeHeld,
    Wanted,
)
from store.blobs.facts import BlobStore, Put, RefusedBlob
from store.blobs.writer import Blob, BlobWriter, FinishedBlob, HashedFile, LentFile
from store.jobs.facts import AT_ONCE
from store.jobs.initial_weights_facts import InitialFacts
from store.output.checkpoints_facts import (
    CAPTURED,
    ArtifactFacts,
    CheckpointFacts,
    captured_file,
    captured_name,
    captured_number,
    order_key,
    resumable,
)
from store.output.facts import (
    DEFAULTS,
    LOG,
    MAX_SERIES,
    Answer,
    Batch,
    CapturedFile,
    MetricPoint,
    NewArtifact,
    NewCheckpoint,
    NewEvent,
    NewLines,
    NewMedia,
    OutputLimits,
    PictureFacts,
    Room,
    StoredArtifact,
)
from store.output.line_patterns import LinePattern
from store.reaches.facts import ReachOrder
from torchyard.contract.cluster.devices import DeviceReport

NOTHING_PUT = Put()

__all__ = [
    "AT_ONCE",
    "CAPTURED",
    "DEFAULTS",
    "LEASE",
    "LOG",
    "MAX_SERIES",
    "NOTHING_BEGUN",
    "NOTHING_PUT",
    "Answer",
    "ArtifactFacts",
    "AttemptFacts",
    "AttemptSecrets",
    "Batch",
    "Begun",
    "Blob",
    "BlobStore",
    "BlobWriter",
    "CapturedFile",
    "CheckpointFacts",
    "Claim",
    "EarlierAttempt",
    "FinishedBlob",
    "HashedFile",
    "HostOffer",
    "Inherited",
    "InitialFacts",
    "KeepOrder",
    "KnownJob",
    "LentFile",
    "LinePattern",
    "MetricPoint",
    "NewArtifact",
    "NewCheckpoint",
    "NewEvent",
    "NewLines",
    "NewMedia",
    "NodeHeld",
    "Orders",
    "OutputLimits",
    "Pass",
    "PictureFacts",
    "Prepared",
    "Put",
    "ReachOrder",
    "RefusedBlob",
    "Registered",
    "Room",
    "StoredArtifact",
    "Wanted",
    "captured_file",
    "captured_name",
    "captured_number",
    "order_key",
    "resumable",
]


@dataclass(frozen=True, slots=True)
class HostOffer:
    """What a worker with devices of its own offers now."""

    devices: Sequence[DeviceReport]
    shares_cpus_of: str | None = None
    """The boot of its host, if it offers the host's CPUs to as many jobs as there are. Told when it registers."""


@dataclass(frozen=True, slots=True)
class Registered:
    """What a daemon gets when it registers."""

    name: str
    claims: Sequence[Claim]
    """The open attempts of its worker, which it adopts, with renewed leases."""


@dataclass(frozen=True, slots=True)
class Orders:
    """The answer to a heartbeat."""

    is_served: bool = True
    """False if another daemon serves the pool now. Then nothing was stored."""
    cpu_sharers: Sequence[str] = ()
    """The ids of the live workers that share the CPUs of this worker's host, with its own, in their order."""
    drains: bool = False
    """Whether the worker is to claim no jobs. This and the next are told to a remote worker, which asks less."""
    waits: bool = False
    """Whether any job may wait."""
    keeps: bool = False
    """Whether somebody has asked for files that are on its host."""
    is_copied: bool = False
    """Whether another host with its token was refused of late."""


@dataclass(frozen=True, slots=True)
class Pass:
    """What a pass over the line gives a remote worker."""

    claims: Sequence[Claim]
    """The attempts that are its own and that it does not carry out yet."""
    lost: Sequence[int]
    """The attempts that it carries out and that are its own no longer."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """An attempt's files are there: its processes start next."""

    start_step: int
    """The step from which it resumes."""
    is_known: bool = True
    """Whether its program goes on there. Else the first step that it logs says where it does."""
