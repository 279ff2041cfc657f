"""The tables, and the first administrator: what the revisions up to this one made, with the names that they gave

Revision ID: 0020
Revises:
"""

import time

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from migrations.turns import limit_lock_waits

revision = "0020"
down_revision = None
branch_labels = None
depends_on = None

DOCUMENT = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
BIG_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
NEVER_TRIMMED = str(2**62)

INDEXES = {
    "ix_jobs_owner_id": ("jobs", ["owner", "id"]),
    "ix_jobs_state_priority_id": ("jobs", ["state", "priority", "id"]),
    "ix_jobs_visibility_id": ("jobs", ["visibility", "id"]),
    "ix_idempotency_keys_created_at": ("idempotency_keys", ["created_at"]),
    "ix_idempotency_keys_job_id": ("idempotency_keys", ["job_id"]),
    "ix_allocations_attempt_id": ("allocations", ["attempt_id"]),
    "uq_log_chunks_job_id_position": ("log_chunks", ["job_id", "position"]),
    "ix_artifacts_sha256": ("artifacts", ["sha256"]),
    "ix_bundles_owner_created_at_sha256": ("bundles", ["owner", "created_at", "sha256"]),
    "ix_bundles_sha256": ("bundles", ["sha256"]),
    "ix_bundle_uses_sha256": ("bundle_uses", ["sha256"]),
    "ix_tokens_made_by": ("tokens", ["made_by"]),
    "ix_tokens_user": ("tokens", ["user"]),
    "ix_browser_sessions_expires_at": ("browser_sessions", ["expires_at"]),
}
PARTIAL_INDEXES = {
    "ix_jobs_events_cut_to_finished_at": ("jobs", ["events_cut_to", "finished_at"], "finished_at IS NOT NULL"),
    "ix_jobs_favoured": ("jobs", ["state", "reason_code"], "state = 'queued' AND reason_code = 'preempting'"),
    "ix_jobs_held_back": ("jobs", ["state", "not_before"], "state = 'queued' AND not_before IS NOT NULL"),
    "ix_jobs_log_cut_to_finished_at": ("jobs", ["log_cut_to", "finished_at"], "finished_at IS NOT NULL"),
    "ix_jobs_points_joined_to_finished_at": ("jobs", ["points_joined_to", "finished_at"], "finished_at IS NOT NULL"),
    "ix_jobs_waiting": ("jobs", ["state", "shape", "priority", "id"], "state = 'queued' AND not_before IS NULL"),
    "ix_attempts_open": ("attempts", ["worker_id"], "ended_at IS NULL"),
    "uq_attempts_open_job": ("attempts", ["job_id"], "ended_at IS NULL"),
    "uq_allocations_open_device": ("allocations", ["worker_id", "device"], "released_at IS NULL"),
    "ix_point_chunks_joined": ("point_chunks", ["job_id", "last"], "last IS NOT NULL"),
    "ix_checkpoints_kept": ("checkpoints", ["job_id", "attempt", "step"], "removed_at IS NULL"),
}
LISTED = [
    "id",
    "state",
    "owner",
    "visibility",
    "name",
    "trainer",
    "priority",
    "started_at",
    "finished_at",
    "search_text",
]
TABLES = (
    "jobs",
    "waiting_reasons",
    "idempotency_keys",
    "deleted_jobs",
    "workers",
    "device_samples",
    "attempts",
    "allocations",
    "job_events",
    "log_chunks",
    "series",
    "point_chunks",
    "checkpoints",
    "artifacts",
    "bundles",
    "bundle_uses",
    "garbage",
    "users",
    "tokens",
    "browser_sessions",
    "quotas",
    "secrets",
    "audit",
    "service",
)
"""In the order in which they are created."""


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    _create_jobs()
    _create_requests()
    _create_workers()
    _create_attempts()
    _create_allocations()
    _create_reports()
    _create_series()
    _create_files()
    _create_bundles()
    _create_users()
    _create_limits()
    for name, (table, columns) in INDEXES.items():
        op.create_index(name, table, columns, unique=name.startswith("uq_"))
    for name, (table, columns, where) in PARTIAL_INDEXES.items():
        only = sa.text(where)
        unique = name.startswith("uq_")
        op.create_index(name, table, columns, unique=unique, sqlite_where=only, postgresql_where=only)
    if op.get_bind().dialect.name == "sqlite":  # PostgreSQL keeps large values outside of the rows
        op.create_index("ix_jobs_listed", "jobs", LISTED)


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    for table in reversed(TABLES):
        op.drop_table(table)


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("trainer", sa.String(40), nullable=False),
        sa.Column("spec", DOCUMENT, nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("labels", DOCUMENT, nullable=False),
        sa.Column("retry_of", sa.String(40)),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("reason_code", sa.String(40), nullable=False),
        sa.Column("reason_message", sa.Text(), nullable=False),
        sa.Column("reason_since", sa.BigInteger(), nullable=False),
        sa.Column("cancel_requested_at", sa.BigInteger()),
        sa.Column("not_before", sa.BigInteger()),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("restarts", sa.Integer(), nullable=False),
        sa.Column("barren", sa.Integer(), nullable=False),
        sa.Column("ran_us", sa.BigInteger(), nullable=False),
        sa.Column("progress", DOCUMENT),
        sa.Column("devices", DOCUMENT, nullable=False),
        sa.Column("error", DOCUMENT),
        sa.Column("events", BIG_KEY, nullable=False),
        sa.Column("log_lines", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger()),
        sa.Column("finished_at", sa.BigInteger()),
        sa.Column("card", DOCUMENT),
        sa.Column("pause_requested_at", sa.BigInteger()),
        sa.Column("preempt_requested_at", sa.BigInteger()),
        sa.Column("preempted_for", sa.String(40)),
        sa.Column("log_cut_to", sa.BigInteger(), server_default=NEVER_TRIMMED, nullable=False),
        sa.Column("events_cut_to", sa.BigInteger(), server_default=NEVER_TRIMMED, nullable=False),
        sa.Column("shape", sa.String(32)),
        sa.Column("visibility", sa.String(8), server_default="private", nullable=False),
        sa.Column("points_joined_to", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("search_text", sa.Text(), server_default="", nullable=False),
        sa.Column("cancel_grace_s", sa.Integer()),
        sa.CheckConstraint(
            "(finished_at IS NOT NULL) = (state IN ('succeeded', 'failed', 'cancelled'))",
            name=op.f("ck_jobs_finished_iff_terminal"),
        ),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
    )
    # PostgreSQL names the constraint NOT NULL after the column, and its name stays.
    op.execute(sa.text("ALTER TABLE jobs RENAME COLUMN events TO position"))


def _create_requests() -> None:
    op.create_table(
        "waiting_reasons",
        sa.Column("shape", sa.String(32), nullable=False),
        sa.Column("code", sa.String(40), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("shape", name="pk_waiting_reasons"),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("key", sa.String(255), nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("location", sa.String(200), nullable=False),
        sa.Column("answer", DOCUMENT, nullable=False),
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_idempotency_keys_job_id"),
        sa.PrimaryKeyConstraint("owner", "key", name="pk_idempotency_keys"),
    )
    op.create_table(
        "deleted_jobs",
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("deleted_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", name="pk_deleted_jobs"),
    )


def _create_workers() -> None:
    op.create_table(
        "workers",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("devices", DOCUMENT, nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.Column("drain_requested_at", sa.BigInteger()),
        sa.Column("starts", DOCUMENT),
        sa.Column("shares_cpus_of", sa.String(64)),
        sa.PrimaryKeyConstraint("id", name="pk_workers"),
    )
    op.create_table(
        "device_samples",
        sa.Column("worker_id", sa.String(40), nullable=False),
        sa.Column("resolution", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("begins", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("devices", DOCUMENT, nullable=False),
        sa.ForeignKeyConstraint(["worker_id"], ["workers.id"], name="fk_device_samples_worker_id"),
        sa.PrimaryKeyConstraint("worker_id", "resolution", "begins", name="pk_device_samples"),
        sqlite_with_rowid=False,
    )


def _create_attempts() -> None:
    op.create_table(
        "attempts",
        sa.Column("id", BIG_KEY, nullable=False),
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("worker_id", sa.String(40), nullable=False),
        sa.Column("lease_until", sa.BigInteger(), nullable=False),
        sa.Column("start_step", sa.BigInteger(), nullable=False),
        sa.Column("launcher", DOCUMENT),
        sa.Column("relay_seq", sa.BigInteger(), nullable=False),
        sa.Column("offsets", DOCUMENT, nullable=False),
        sa.Column("checkpoints", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger()),
        sa.Column("end_reason", sa.String(20)),
        sa.Column("detail", sa.Text()),
        sa.Column("relay_lag_us", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("log_bytes", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("message_bytes", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("cut", sa.String(100), server_default="", nullable=False),
        sa.Column("stacks_requested_at", sa.BigInteger()),
        sa.Column("stacks", DOCUMENT),
        sa.Column("point_bytes", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("reported_at", sa.BigInteger()),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_attempts_job_id"),
        sa.ForeignKeyConstraint(["worker_id"], ["workers.id"], name="fk_attempts_worker_id"),
        sa.PrimaryKeyConstraint("id", name="pk_attempts"),
        sa.UniqueConstraint("job_id", "number", name="uq_attempts_job_id_number"),
    )


def _create_allocations() -> None:
    op.create_table(
        "allocations",
        sa.Column("id", BIG_KEY, nullable=False),
        sa.Column("attempt_id", BIG_KEY, nullable=False),
        sa.Column("node_rank", sa.Integer(), nullable=False),
        sa.Column("worker_id", sa.String(40), nullable=False),
        sa.Column("device", sa.String(100), nullable=False),
        sa.Column("released_at", sa.BigInteger()),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.id"], name="fk_allocations_attempt_id"),
        sa.ForeignKeyConstraint(["worker_id"], ["workers.id"], name="fk_allocations_worker_id"),
        sa.PrimaryKeyConstraint("id", name="pk_allocations"),
    )


def _create_reports() -> None:
    op.create_table(
        "job_events",
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("seq", BIG_KEY, autoincrement=False, nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("type", sa.String(16), nullable=False),
        sa.Column("attempt", sa.Integer()),
        sa.Column("data", DOCUMENT, nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_job_events_job_id"),
        sa.PrimaryKeyConstraint("job_id", "seq", name="pk_job_events"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "log_chunks",
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("first", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("rank", sa.Integer()),
        sa.Column("stream", sa.String(6), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("position", sa.BigInteger(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_log_chunks_job_id"),
        sa.PrimaryKeyConstraint("job_id", "first", name="pk_log_chunks"),
        sqlite_with_rowid=False,
    )


def _create_series() -> None:
    op.create_table(
        "series",
        sa.Column("id", BIG_KEY, nullable=False),
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("key", sa.String(200), nullable=False),
        sa.Column("latest", sa.Float(53)),
        sa.Column("count", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("source", sa.String(16)),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_series_job_id"),
        sa.PrimaryKeyConstraint("id", name="pk_series"),
        sa.UniqueConstraint("job_id", "key", name="uq_series_job_id_key"),
    )
    op.create_table(
        "point_chunks",
        sa.Column("series_id", BIG_KEY, autoincrement=False, nullable=False),
        sa.Column("first", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.Column("last", sa.BigInteger()),
        sa.Column("places", sa.LargeBinary()),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_point_chunks_job_id"),
        sa.ForeignKeyConstraint(["series_id"], ["series.id"], name="fk_point_chunks_series_id"),
        sa.PrimaryKeyConstraint("series_id", "first", name="pk_point_chunks"),
        sa.UniqueConstraint("job_id", "first", name="uq_point_chunks_job_id_first"),
        sqlite_with_rowid=False,
    )


def _create_files() -> None:
    op.create_table(
        "checkpoints",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("epoch", sa.Integer()),
        sa.Column("end_of_epoch", sa.Boolean(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("metrics", DOCUMENT, nullable=False),
        sa.Column("monitored", sa.Float(53)),
        sa.Column("files", DOCUMENT, nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("removed_at", sa.BigInteger()),
        sa.Column("size", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("source", sa.String(16)),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_checkpoints_job_id"),
        sa.PrimaryKeyConstraint("id", name="pk_checkpoints"),
        sa.UniqueConstraint("job_id", "attempt", "name", name="uq_checkpoints_job_id_attempt_name"),
    )
    op.create_table(
        "artifacts",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("path", sa.String(1000), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_artifacts_job_id"),
        sa.PrimaryKeyConstraint("id", name="pk_artifacts"),
        sa.UniqueConstraint("job_id", "path", name="uq_artifacts_job_id_path"),
    )


def _create_bundles() -> None:
    op.create_table(
        "bundles",
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("files", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("last_used_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("size > 0", name=op.f("ck_bundles_size")),
        sa.PrimaryKeyConstraint("owner", "sha256", name="pk_bundles"),
    )
    op.create_table(
        "bundle_uses",
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_bundle_uses_job_id"),
        sa.PrimaryKeyConstraint("job_id", "sha256", name="pk_bundle_uses"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "garbage",
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name="pk_garbage"),
    )


def _create_users() -> None:
    users = op.create_table(
        "users",
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("disabled_at", sa.BigInteger()),
        sa.PrimaryKeyConstraint("name", name="pk_users"),
    )
    op.bulk_insert(users, [{"name": "admin", "role": "admin", "created_at": time.time_ns() // 1000}])
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("user", sa.String(100), nullable=False),
        sa.Column("made_by", sa.String(40)),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("scopes", DOCUMENT, nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger()),
        sa.Column("used_at", sa.BigInteger()),
        sa.Column("revoked_at", sa.BigInteger()),
        sa.ForeignKeyConstraint(["user"], ["users.name"], name="fk_tokens_user"),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
    )
    op.create_table(
        "browser_sessions",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("credential", sa.String(64), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("csrf_digest", sa.String(64), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_browser_sessions"),
    )


def _create_limits() -> None:
    op.create_table(
        "quotas",
        sa.Column("kind", sa.String(4), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("resource", sa.String(20), nullable=False),
        sa.Column("limit", sa.BigInteger()),
        sa.CheckConstraint("kind IN ('role', 'user')", name=op.f("ck_quotas_kind")),
        sa.PrimaryKeyConstraint("kind", "name", "resource", name="pk_quotas"),
    )
    op.create_table(
        "secrets",
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("value", sa.LargeBinary(), nullable=False),
        sa.Column("key_id", sa.String(16), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("owner", "name", name="pk_secrets"),
    )
    op.create_table(
        "audit",
        sa.Column("id", BIG_KEY, nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("who", sa.String(100), nullable=False),
        sa.Column("token_id", sa.String(40)),
        sa.Column("address", sa.String(64), nullable=False),
        sa.Column("action", sa.String(40), nullable=False),
        sa.Column("object", sa.Text(), nullable=False),
        sa.Column("outcome", sa.String(40), nullable=False),
        sa.Column("request_id", sa.String(100), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
    )
    op.create_table(
        "service",
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("blobs", sa.String(5000)),
        sa.CheckConstraint("number = 1", name=op.f("ck_service_one_row")),
        sa.PrimaryKeyConstraint("number", name="pk_service"),
    )
