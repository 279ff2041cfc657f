"""Jobs, why they wait and for which others, stars, counts, first weights, idempotency keys and deleted jobs."""

from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Index,
    Integer,
    String,
    Text,
    false,
    func,
    literal_column,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from store.db.database import CleanText, Document, now_us
from store.db.stored_spec import StoredSpec
from store.db.tables import ONLY_ON, Base, BigKey
from torchyard.contract.states import JobState

_TERMINAL = ", ".join(f"'{state}'" for state in JobState if state.terminal)

HAS_OWN_REASON = "reason_code IN ('preempting', 'reserved')"
"""The condition that a queued job waits for a reason of its own: others stop for it, or a place is kept for it."""
_OF_SWEEP = text("sweep_id IS NOT NULL")
HELD = 2**62
"""`not_before` of a queued job that waits for other jobs: it is not in the line."""
IN_LINE = f"(not_before IS NULL OR not_before < {HELD})"
"""The condition that a queued job is in the line."""
NEVER_TRIMMED = 2**62
"""Sentinel: never trimmed."""
_IS_RETRY = text("retry_of IS NOT NULL")
_IS_ARCHIVED = text("archived_at IS NOT NULL")


def _index_of_finished(column: str) -> Index:
    return Index(
        f"ix_jobs_{column}_finished_at",
        column,
        "finished_at",
        sqlite_where=text("finished_at IS NOT NULL"),
        postgresql_where=text("finished_at IS NOT NULL"),
    )


def _index_of_queued(name: str, *columns: str, where: str = "") -> Index:
    # The state comes first although it is constant: otherwise SQLite prefers another index that starts with it.
    condition = text(f"state = '{JobState.QUEUED}'{where}")
    return Index(name, "state", *columns, sqlite_where=condition, postgresql_where=condition)


_LISTED = Index(
    "ix_jobs_listed",
    *("id", "state", "owner", "visibility", "name", "trainer", "priority", "started_at", "finished_at"),
    *("archived_at", "search_text"),
    info={ONLY_ON: "sqlite"},
).ddl_if(dialect="sqlite")
"""Covers what lists filter and sort by. PostgreSQL needs no such index: it keeps large values outside of the rows."""


class Job(Base):
    """What a user submitted. Only `store.jobs.jobs.transition` writes `state`."""

    __tablename__ = "jobs"
    __table_args__ = (
        CheckConstraint(f"(finished_at IS NOT NULL) = (state IN ({_TERMINAL}))", name="finished_iff_terminal"),
        Index("ix_jobs_visibility_id", "visibility", "id"),
        _LISTED,
        _index_of_finished("log_cut_to"),
        _index_of_finished("events_cut_to"),
        _index_of_finished("points_joined_to"),
        _index_of_queued("ix_jobs_waiting", "shape", "priority", "created_at", "id", where=" AND not_before IS NULL"),
        _index_of_queued(
            "ix_jobs_line", "priority", "owner", "device_request", "created_at", "id", where=f" AND {IN_LINE}"
        ),
        _index_of_queued("ix_jobs_held_back", "not_before", where=" AND not_before IS NOT NULL"),
        _index_of_queued("ix_jobs_favoured", "reason_code", where=f" AND {HAS_OWN_REASON}"),
        Index("ix_jobs_lined_at", "lined_at", "id"),
        Index("ix_jobs_of_sweep", "sweep_id", "state", "id", sqlite_where=_OF_SWEEP, postgresql_where=_OF_SWEEP),
        Index(
            "ix_jobs_by_schedule",
            *("schedule_id", "due_at"),
            unique=True,
            sqlite_where=text("schedule_id IS NOT NULL"),
            postgresql_where=text("schedule_id IS NOT NULL"),
        ),
        Index("ix_jobs_retry_of", "retry_of", "id", sqlite_where=_IS_RETRY, postgresql_where=_IS_RETRY),
        Index("ix_jobs_archived", "id", sqlite_where=_IS_ARCHIVED, postgresql_where=_IS_ARCHIVED),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    owner: Mapped[str] = mapped_column(String(100))
    name: Mapped[str] = mapped_column(String(100))
    trainer: Mapped[str] = mapped_column(String(40))
    spec: Mapped[dict[str, Any]]
    priority: Mapped[int]
    shape: Mapped[str] = mapped_column(String(32), nullable=True)
    """`store.jobs.shapes.shape_of` the job when it was queued last."""
    needs: Mapped[dict[str, Any] | None] = mapped_column(Document)
    """`store.jobs.needs.needs_of` its spec."""
    device_request: Mapped[str] = mapped_column(String(8), default="auto", server_default="auto")
    """`resources.device` of its spec."""
    lined_at: Mapped[int] = mapped_column(BigInteger, default=now_us(), server_default="0")
    """When the job joined or left the line, or moved in it."""
    labels: Mapped[dict[str, Any]]
    search_text: Mapped[str] = mapped_column(Text, default="", server_default="")
    """`store.jobs.jobs.search_text`: what a search of a list reads."""
    visibility: Mapped[str] = mapped_column(String(8), default="private", server_default="private")
    """`team`: every user of the server may read the job; `private`: its owner and administrators."""
    retry_of: Mapped[str | None] = mapped_column(String(40))
    begins_with: Mapped[str | None] = mapped_column(String(10))
    """What a retry finds of the other job in its working folder: a `store.attempts.facts.Inherits`. NULL: nothing."""
    sweep_id: Mapped[str | None] = mapped_column(String(40))
    """The sweep whose trial it is."""
    trial: Mapped[int | None]
    """Its number in the sweep."""
    schedule_id: Mapped[str | None] = mapped_column(String(40))
    """The schedule of which it is a run, which may be deleted."""
    due_at: Mapped[int | None] = mapped_column(BigInteger)
    """When that run was due."""
    state: Mapped[str] = mapped_column(String(16))
    version: Mapped[int] = mapped_column(default=1)
    """Rises with changes of state, requests, checkpoints and the card, not with progress."""
    reason_code: Mapped[str] = mapped_column(String(40))
    reason_message: Mapped[str] = mapped_column(CleanText)
    reason_since: Mapped[int] = mapped_column(BigInteger, default=now_us())
    cancel_requested_at: Mapped[int | None] = mapped_column(BigInteger)
    cancel_grace_s: Mapped[int | None] = mapped_column(Integer)
    """The most seconds that the cancelled attempt may take to stop, if less than its `stop_grace`. 0: it is killed."""
    pause_requested_at: Mapped[int | None] = mapped_column(BigInteger)
    """Set while the job is paused by its owner or requested to pause."""
    pause_at: Mapped[dict[str, int] | None] = mapped_column(Document)
    """Where its attempts pause by themselves, such as `{"epochs": 3}`: a `PausePoint` of a trial."""
    preempt_requested_at: Mapped[int | None] = mapped_column(BigInteger)
    preempted_for: Mapped[str | None] = mapped_column(String(40))
    """The queued job that needs the devices of this job's attempt."""
    idle_requested_at: Mapped[int | None] = mapped_column(BigInteger)
    """When its attempt was asked to stop because it does not use its GPUs."""
    idle_timeout_s: Mapped[int | None] = mapped_column(Integer)
    """The idle timeout that it had then, in seconds."""
    not_before: Mapped[int | None] = mapped_column(BigInteger)
    """Until when a queued job is held back after a failure; `HELD` while it waits for other jobs."""
    attempt: Mapped[int] = mapped_column(default=0)
    """The number of the latest attempt; 0 before the first."""
    restarts: Mapped[int] = mapped_column(default=0)
    """Retries that counted against `max_restarts`."""
    attempts_without_checkpoint: Mapped[int] = mapped_column("barren", default=0)
    """Attempts in a row that published no checkpoint of a later step."""
    ran_us: Mapped[int] = mapped_column(BigInteger, default=0)
    """Microseconds that the ended attempts ran together; the time limit covers all of them."""
    waited_us: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    """Microseconds that it was queued in all, until `lined_at`."""
    waited_first_us: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    """Of these, those until its first start."""
    progress: Mapped[dict[str, Any] | None] = mapped_column(Document)
    card: Mapped[dict[str, Any] | None] = mapped_column(Document)
    """The model card: size, data and speed of the run. At most 64 KiB."""
    devices: Mapped[list[Any]] = mapped_column(Document, default=list)
    error: Mapped[dict[str, Any] | None] = mapped_column(Document)
    position: Mapped[int] = mapped_column(BigKey, default=0)
    """Position of the newest item: each event, metric point and log line has one, in the order of commits."""
    log_lines: Mapped[int] = mapped_column(BigInteger, default=0)
    log_cut_to: Mapped[int] = mapped_column(BigInteger, default=NEVER_TRIMMED, server_default=str(NEVER_TRIMMED))
    """Bytes to which the log of the finished job was trimmed."""
    events_cut_to: Mapped[int] = mapped_column(BigInteger, default=NEVER_TRIMMED, server_default=str(NEVER_TRIMMED))
    """Bytes to which the events of its attempts were trimmed."""
    points_joined_to: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    """The position before which `store.output.joining` has joined the points."""
    created_at: Mapped[int] = mapped_column(BigInteger, default=now_us())
    started_at: Mapped[int | None] = mapped_column(BigInteger)
    finished_at: Mapped[int | None] = mapped_column(BigInteger)
    archived_at: Mapped[int | None] = mapped_column(BigInteger)
    """Since when lists leave it out, unless they are asked for such jobs. Only a job that has ended is archived."""
    notes: Mapped[str | None] = mapped_column(Text, deferred=True)
    """Markdown, at most `torchyard.contract.jobs.notes.MOST_NOTES_BYTES`; None if there are none."""

    @property
    def stored_spec(self) -> StoredSpec:
        """The part of the spec that the service reads."""
        return StoredSpec.model_validate(self.spec)


Index("ix_jobs_by_name", Job.name, Job.id.desc())
Index("ix_jobs_by_owner", Job.owner, Job.id.desc())
Index("ix_jobs_by_state", Job.state, Job.id.desc())
Index("ix_jobs_by_priority", Job.priority.desc(), Job.id.desc())
for _name, _time in {"start": Job.started_at, "end": Job.finished_at}.items():
    # SQLite has the times in _LISTED, and cannot tell migrations of an index over an expression.
    Index(
        f"ix_jobs_by_{_name}",
        func.coalesce(_time, literal_column("0")).desc(),
        Job.id.desc(),
        info={ONLY_ON: "postgresql"},
    ).ddl_if(dialect="postgresql")

Index(
    "ix_jobs_searched",
    func.search_grams(Job.search_text),
    postgresql_using="gin",
    postgresql_with={"fastupdate": "on", "gin_pending_list_limit": "256"},
    info={ONLY_ON: "postgresql"},
).ddl_if(dialect="postgresql")


class WaitingReason(Base):
    """Why the jobs of a shape wait, except those that wait for a reason of their own."""

    __tablename__ = "waiting_reasons"

    shape: Mapped[str] = mapped_column(String(32), primary_key=True)
    code: Mapped[str] = mapped_column(String(40))
    message: Mapped[str] = mapped_column(CleanText)
    since: Mapped[int] = mapped_column(BigInteger, default=now_us())


class Dependency(Base):
    """A job that must have ended before another one starts. Its own row says how it ended, until it is deleted."""

    __tablename__ = "dependencies"
    __table_args__ = (Index("ix_dependencies_awaited", "awaited"),)

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    """The job that waits."""
    number: Mapped[int] = mapped_column(primary_key=True)
    """Its index in the spec, from 0."""
    awaited: Mapped[str] = mapped_column(String(40))
    """The job for which it waits, which may have been deleted since."""
    on: Mapped[str] = mapped_column(String(16))
    """How that must end: `torchyard.contract.spec.after.Ending`."""
    ended: Mapped[str | None] = mapped_column(String(16))
    """The state in which it had ended, if it was deleted."""


class Star(Base):
    """A job that a user has starred. Nobody else sees it."""

    __tablename__ = "stars"
    __table_args__ = (Index("ix_stars_job_id", "job_id"),)

    who: Mapped[str] = mapped_column(String(100), primary_key=True)
    job_id: Mapped[str] = mapped_column(String(40), primary_key=True)


class IdempotencyKey(Base):
    """An idempotency key of a user's request that created a job, with the id of that job. Kept for 24 hours."""

    __tablename__ = "idempotency_keys"
    __table_args__ = (
        Index("ix_idempotency_keys_created_at", "created_at"),
        Index("ix_idempotency_keys_job_id", "job_id"),
    )

    owner: Mapped[str] = mapped_column(String(100), primary_key=True)
    key: Mapped[str] = mapped_column(String(255), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(64))
    """SHA-256 of the request's method, path and body."""
    status: Mapped[int]
    location: Mapped[str] = mapped_column(String(200))
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    created_at: Mapped[int] = mapped_column(BigInteger, default=now_us())


class DeletedJob(Base):
    """The tombstone of a deleted job, by which workers remove its run directories."""

    __tablename__ = "deleted_jobs"
    __table_args__ = (Index("ix_deleted_jobs_deleted_at", "deleted_at", "job_id"),)

    job_id: Mapped[str] = mapped_column(String(40), primary_key=True)
    deleted_at: Mapped[int] = mapped_column(BigInteger, default=now_us())


class Garbage(Base):
    """A blob of a deleted job or a removed checkpoint, to be removed if no checkpoint refers to it."""

    __tablename__ = "garbage"

    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)


class InitialWeights(Base):
    """What `init_from` named when the job was submitted: a checkpoint or a model. It may have been removed since.

    Its files are kept for the job until this ends.
    """

    __tablename__ = "initial_weights"
    __table_args__ = (Index("ix_initial_weights_source_job", "source_job"),)

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    source_job: Mapped[str | None] = mapped_column(String(40))
    source_checkpoint: Mapped[str | None] = mapped_column(String(40))
    model_owner: Mapped[str | None] = mapped_column(String(100))
    model_name: Mapped[str | None] = mapped_column(String(100))
    model_version: Mapped[int | None]
    trainer: Mapped[str] = mapped_column(String(40))
    """The trainer of the job that has saved them."""
    step: Mapped[int] = mapped_column(BigInteger)
    epoch: Mapped[int | None]
    files: Mapped[list[Any]]
    """`{path, size, sha256}` each; empty once the job has ended."""
    size: Mapped[int] = mapped_column(BigInteger)
    """Bytes of its files together."""


class JobCount(Base):
    """A change of the number of jobs in a state. The sum over the rows with the same other columns is that number.

    Triggers on `jobs` add a row for each change, as one row of each state would be waited for by all writers.
    A migration that makes `jobs` anew must make them anew, too.
    """

    __tablename__ = "job_counts"

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    owner: Mapped[str] = mapped_column(String(100))
    visibility: Mapped[str] = mapped_column(String(8))
    state: Mapped[str] = mapped_column(String(16))
    archived: Mapped[bool] = mapped_column(default=False, server_default=false())
    jobs: Mapped[int] = mapped_column(BigInteger)


class StoredCount(Base):
    """A change of the bytes that an owner has stored. The sums over an owner's rows are those bytes.

    Triggers add a row for each change, as one row of an owner would be waited for by all who write for that owner:
    those of `migrations/versions/0060_baseline.py`, on the tables that it names. A migration that makes one of them
    anew must make its triggers anew, too.
    """

    __tablename__ = "stored_counts"
    __table_args__ = (Index("ix_stored_counts_owner", "owner", "files", "written"),)

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    owner: Mapped[str] = mapped_column(String(100))
    files: Mapped[int] = mapped_column(BigInteger)
    """Bytes of bundles, and of what jobs have stored."""
    written: Mapped[int] = mapped_column(BigInteger)
    """Bytes of what requests have written into the database: specs, points, notes, cards and preferences, events that
    somebody asked for, and entries of the audit."""
