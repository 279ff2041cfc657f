"""The tables. Every time is in microseconds since the epoch, by the database's clock."""

from store.attempts.tables import Allocation, Attempt, DeviceSample, JobPackages, KeepRequest, Worker, WorkFolder
from store.blobs.tables import BlobHold, RemovedBlob
from store.bundles.tables import Bundle, BundleUse
from store.cluster.tables import AttemptUse, DeviceDay, WorkerToken
from store.db.tables import Base, Service
from store.jobs.tables import (
    HELD,
    NEVER_TRIMMED,
    DeletedJob,
    Dependency,
    Garbage,
    IdempotencyKey,
    InitialWeights,
    Job,
    JobCount,
    Star,
    StoredCount,
    WaitingReason,
)
from store.models.tables import Model, ModelVersion
from store.notifications.tables import Message, NotificationTarget, Signal
from store.output.tables import Artifact, Checkpoint, JobEvent, LogChunk, Media, MediaPicture, PointChunk, Series
from store.queue.tables import Calibration, Estimate, Forecast, ForecastLease, Reservation, RunLengths, Usage
from store.reaches.tables import Origin, Reach
from store.schedules.tables import Schedule
from store.sweeps.tables import Sweep, SweepTrial
from store.team.tables import (
    AuditEntry,
    BrowserSession,
    FailedLogins,
    JoinCode,
    LoginCode,
    Preferences,
    Quota,
    SavedView,
    Secret,
    Token,
    User,
)

__all__ = [
    "HELD",
    "NEVER_TRIMMED",
    "Allocation",
    "Artifact",
    "Attempt",
    "AttemptUse",
    "AuditEntry",
    "Base",
    "BlobHold",
    "BrowserSession",
    "Bundle",
    "BundleUse",
    "Calibration",
    "Checkpoint",
    "DeletedJob",
    "Dependency",
    "DeviceDay",
    "DeviceSample",
    "Estimate",
    "FailedLogins",
    "Forecast",
    "ForecastLease",
    "Garbage",
    "IdempotencyKey",
    "InitialWeights",
    "Job",
    "JobCount",
    "JobEvent",
    "JobPackages",
    "JoinCode",
    "KeepRequest",
    "LogChunk",
    "LoginCode",
    "Media",
    "MediaPicture",
    "Message",
    "Model",
    "ModelVersion",
    "NotificationTarget",
    "Origin",
    "PointChunk",
    "Preferences",
    "Quota",
    "Reach",
    "RemovedBlob",
    "Reservation",
    "RunLengths",
    "SavedView",
    "Schedule",
    "Secret",
    "Series",
    "Service",
    "Signal",
    "Star",
    "StoredCount",
    "Sweep",
    "SweepTrial",
    "Token",
    "Usage",
    "User",
    "WaitingReason",
    "WorkFolder",
    "Worker",
    "WorkerToken",
]
