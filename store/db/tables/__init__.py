"""The tables. Every time is in microseconds since the epoch, by the database's clock."""

from store.db.tables.accounts import AttemptUse, DeviceDay
from store.db.tables.artifacts import Artifact
from store.db.tables.attempts import Allocation, Attempt, DeviceSample, Worker
from store.db.tables.base import Base
from store.db.tables.bundles import Bundle, BundleUse
from store.db.tables.contents import Checkpoint, JobEvent, LogChunk, PointChunk, Series
from store.db.tables.counts import JobCount, StoredCount
from store.db.tables.dependencies import Dependency
from store.db.tables.estimates import Calibration, Estimate, Forecast, ForecastLease
from store.db.tables.fairness import Reservation, RunLengths, Usage
from store.db.tables.folders import WorkFolder
from store.db.tables.initial_weights import InitialWeights
from store.db.tables.jobs import HELD, NEVER_TRIMMED, Job, WaitingReason
from store.db.tables.keeping import KeepRequest
from store.db.tables.media import Media, MediaPicture
from store.db.tables.models import Model, ModelVersion
from store.db.tables.notifications import Message, NotificationTarget, Signal
from store.db.tables.packages import JobPackages
from store.db.tables.requests import DeletedJob, Garbage, IdempotencyKey
from store.db.tables.schedules import Schedule
from store.db.tables.service import Service
from store.db.tables.stars import Star
from store.db.tables.sweeps import Sweep, SweepTrial
from store.db.tables.team import (
    AuditEntry,
    BrowserSession,
    FailedLogins,
    LoginCode,
    Preferences,
    Quota,
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
    "KeepRequest",
    "LogChunk",
    "LoginCode",
    "Media",
    "MediaPicture",
    "Message",
    "Model",
    "ModelVersion",
    "NotificationTarget",
    "PointChunk",
    "Preferences",
    "Quota",
    "Reservation",
    "RunLengths",
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
]
