"""The tables as the first release has them, the triggers that count in them, and the first administrator

Revision ID: 0060
Revises:
"""

from dataclasses import dataclass
import time
from typing import Any

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from migrations.turns import limit_lock_waits

revision = "0060"
down_revision = None
branch_labels = None
depends_on = None

DOCUMENT = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
BIG_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

# pg_trgm has such an index, but is not installed everywhere. The cost keeps PostgreSQL from calling it for each row.
SEARCH_GRAMS = (
    "CREATE FUNCTION search_grams(text) RETURNS text[] LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE COST 1000 AS $$"
    " SELECT ARRAY(SELECT substr($1, n, 3) FROM generate_series(1, length($1) - 2) AS n) $$"
)
# A search reads the rows that wait for their place in the index one by one: few may wait (in KiB).
SEARCH_INDEX = (
    "CREATE INDEX ix_jobs_searched ON jobs USING gin (search_grams(search_text))"
    " WITH (fastupdate = on, gin_pending_list_limit = 256)"
)
COUNTED_OF_JOB = {"owner": "owner", "visibility": "visibility", "state": "state", "archived": "archived_at IS NOT NULL"}
"""What each column of `job_counts` is of a job."""
ROW_BYTES = 256
"""What a small row and its keys take beside its text, in round numbers."""
OWN = "{row}.owner"
OF_JOB = "(SELECT owner FROM jobs WHERE jobs.id = {row}.job_id)"
OF_SWEEP = "(SELECT owner FROM sweeps WHERE sweeps.id = {row}.sweep_id)"


@dataclass(frozen=True)
class Counted:
    """What rows of a table have stored: the expressions of their owner and of their bytes."""

    owner: str
    kind: str
    """The column of `stored_counts`: `files` for what jobs store, `written` for what requests write."""
    columns: tuple[str, ...]
    """Those that change, and on which the bytes depend."""
    size: str = "{row}.size"
    condition: str = ""
    """Which rows count, if not all."""


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    _create_jobs()
    _create_submissions()
    _create_workers()
    _create_queue()
    _create_output()
    _create_sweeps_and_models()
    _create_team()
    _create_rest()
    _create_triggers()
    op.bulk_insert(
        sa.table("users", sa.column("name"), sa.column("role"), sa.column("created_at")),
        [{"name": "admin", "role": "admin", "created_at": time.time_ns() // 1000}],
    )


def downgrade() -> None:
    connection = op.get_bind()
    limit_lock_waits(connection)
    tables = sa.MetaData()
    tables.reflect(connection, only=lambda name, _: name != "alembic_version")
    tables.drop_all(connection)
    if _is_postgresql():  # functions do not go with their tables
        op.execute("DROP FUNCTION search_grams(text)")
        for name in _triggers():
            op.execute(f"DROP FUNCTION {name}()")


def _is_postgresql() -> bool:
    return op.get_bind().dialect.name == "postgresql"


def _where(condition: str) -> dict[str, Any]:
    return {"sqlite_where": sa.text(condition), "postgresql_where": sa.text(condition)}


def _ordered_by_bytes(length: int) -> sa.String:
    return sa.String(length, collation="C").with_variant(sa.String(length), "sqlite")


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
        sa.Column("position", BIG_KEY, nullable=False),
        sa.Column("log_lines", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger()),
        sa.Column("finished_at", sa.BigInteger()),
        sa.Column("card", DOCUMENT),
        sa.Column("pause_requested_at", sa.BigInteger()),
        sa.Column("preempt_requested_at", sa.BigInteger()),
        sa.Column("preempted_for", sa.String(40)),
        sa.Column("log_cut_to", sa.BigInteger(), server_default="4611686018427387904", nullable=False),
        sa.Column("events_cut_to", sa.BigInteger(), server_default="4611686018427387904", nullable=False),
        sa.Column("shape", sa.String(32)),
        sa.Column("visibility", sa.String(8), server_default="private", nullable=False),
        sa.Column("points_joined_to", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("search_text", sa.Text(), server_default="", nullable=False),
        sa.Column("cancel_grace_s", sa.Integer()),
        sa.Column("device_request", sa.String(8), server_default="auto", nullable=False),
        sa.Column("lined_at", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("waited_us", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("waited_first_us", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("sweep_id", sa.String(40)),
        sa.Column("trial", sa.Integer()),
        sa.Column("schedule_id", sa.String(40)),
        sa.Column("due_at", sa.BigInteger()),
        sa.Column("archived_at", sa.BigInteger()),
        sa.Column("notes", sa.Text()),
        sa.Column("pause_at", DOCUMENT),
        sa.Column("idle_requested_at", sa.BigInteger()),
        sa.Column("idle_timeout_s", sa.Integer()),
        sa.Column("begins_with", sa.String(10)),
        sa.CheckConstraint(
            "(finished_at IS NOT NULL) = (state IN ('succeeded', 'failed', 'cancelled'))",
            name=op.f("ck_jobs_finished_iff_terminal"),
        ),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
    )
    op.create_index("ix_jobs_archived", "jobs", ["id"], **_where("archived_at IS NOT NULL"))
    op.create_index("ix_jobs_by_name", "jobs", ["name", sa.literal_column("id DESC")])
    op.create_index("ix_jobs_by_owner", "jobs", ["owner", sa.literal_column("id DESC")])
    op.create_index("ix_jobs_by_priority", "jobs", [sa.literal_column("priority DESC"), sa.literal_column("id DESC")])
    op.create_index(
        "ix_jobs_by_schedule", "jobs", ["schedule_id", "due_at"], unique=True, **_where("schedule_id IS NOT NULL")
    )
    op.create_index("ix_jobs_by_state", "jobs", ["state", sa.literal_column("id DESC")])
    op.create_index(
        "ix_jobs_events_cut_to_finished_at",
        "jobs",
        ["events_cut_to", "finished_at"],
        **_where("finished_at IS NOT NULL"),
    )
    op.create_index(
        "ix_jobs_favoured",
        "jobs",
        ["state", "reason_code"],
        **_where("state = 'queued' AND reason_code IN ('preempting', 'reserved')"),
    )
    op.create_index(
        "ix_jobs_held_back", "jobs", ["state", "not_before"], **_where("state = 'queued' AND not_before IS NOT NULL")
    )
    op.create_index(
        "ix_jobs_line",
        "jobs",
        ["state", "priority", "owner", "device_request", "created_at", "id"],
        **_where("state = 'queued' AND (not_before IS NULL OR not_before < 4611686018427387904)"),
    )
    op.create_index("ix_jobs_lined_at", "jobs", ["lined_at", "id"])
    op.create_index(
        "ix_jobs_log_cut_to_finished_at", "jobs", ["log_cut_to", "finished_at"], **_where("finished_at IS NOT NULL")
    )
    op.create_index("ix_jobs_of_sweep", "jobs", ["sweep_id", "state", "id"], **_where("sweep_id IS NOT NULL"))
    op.create_index(
        "ix_jobs_points_joined_to_finished_at",
        "jobs",
        ["points_joined_to", "finished_at"],
        **_where("finished_at IS NOT NULL"),
    )
    op.create_index("ix_jobs_retry_of", "jobs", ["retry_of", "id"], **_where("retry_of IS NOT NULL"))
    op.create_index("ix_jobs_visibility_id", "jobs", ["visibility", "id"])
    op.create_index(
        "ix_jobs_waiting",
        "jobs",
        ["state", "shape", "priority", "created_at", "id"],
        **_where("state = 'queued' AND not_before IS NULL"),
    )
    if _is_postgresql():
        op.execute(SEARCH_GRAMS)
        op.execute(SEARCH_INDEX)
        op.create_index(
            "ix_jobs_by_end", "jobs", [sa.literal_column("coalesce(finished_at, 0) DESC"), sa.literal_column("id DESC")]
        )
        op.create_index(
            "ix_jobs_by_start",
            "jobs",
            [sa.literal_column("coalesce(started_at, 0) DESC"), sa.literal_column("id DESC")],
        )
    else:  # PostgreSQL keeps large values outside of the rows
        op.create_index(
            "ix_jobs_listed",
            "jobs",
            [
                "id",
                "state",
                "owner",
                "visibility",
                "name",
                "trainer",
                "priority",
                "started_at",
                "finished_at",
                "archived_at",
                "search_text",
            ],
        )
    op.create_table(
        "waiting_reasons",
        sa.Column("shape", sa.String(32), nullable=False),
        sa.Column("code", sa.String(40), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("shape", name="pk_waiting_reasons"),
    )
    op.create_table(
        "dependencies",
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("awaited", sa.String(40), nullable=False),
        sa.Column("on", sa.String(16), nullable=False),
        sa.Column("ended", sa.String(16)),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_dependencies_job_id"),
        sa.PrimaryKeyConstraint("job_id", "number", name="pk_dependencies"),
    )
    op.create_index("ix_dependencies_awaited", "dependencies", ["awaited"])
    op.create_table(
        "stars",
        sa.Column("who", sa.String(100), nullable=False),
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.PrimaryKeyConstraint("who", "job_id", name="pk_stars"),
    )
    op.create_index("ix_stars_job_id", "stars", ["job_id"])
    op.create_table(
        "job_packages",
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("document", DOCUMENT, nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_job_packages_job_id"),
        sa.PrimaryKeyConstraint("job_id", name="pk_job_packages"),
    )
    op.create_table(
        "work_folders",
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("worker_id", sa.String(40), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("measured_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "worker_id", name="pk_work_folders"),
    )
    op.create_index("ix_work_folders_worker_id", "work_folders", ["worker_id"])
    op.create_table(
        "initial_weights",
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("source_job", sa.String(40)),
        sa.Column("source_checkpoint", sa.String(40)),
        sa.Column("model_owner", sa.String(100)),
        sa.Column("model_name", sa.String(100)),
        sa.Column("model_version", sa.Integer()),
        sa.Column("trainer", sa.String(40), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.Integer()),
        sa.Column("files", DOCUMENT, nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_initial_weights_job_id"),
        sa.PrimaryKeyConstraint("job_id", name="pk_initial_weights"),
    )
    op.create_index("ix_initial_weights_source_job", "initial_weights", ["source_job"])


def _create_submissions() -> None:
    op.create_table(
        "idempotency_keys",
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("key", sa.String(255), nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("location", sa.String(200), nullable=False),
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_idempotency_keys_job_id"),
        sa.PrimaryKeyConstraint("owner", "key", name="pk_idempotency_keys"),
    )
    op.create_index("ix_idempotency_keys_created_at", "idempotency_keys", ["created_at"])
    op.create_index("ix_idempotency_keys_job_id", "idempotency_keys", ["job_id"])
    op.create_table(
        "deleted_jobs",
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("deleted_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", name="pk_deleted_jobs"),
    )
    op.create_index("ix_deleted_jobs_deleted_at", "deleted_jobs", ["deleted_at", "job_id"])
    op.create_table(
        "garbage",
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name="pk_garbage"),
    )
    op.create_table(
        "bundles",
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("files", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("last_used_at", sa.BigInteger(), nullable=False),
        sa.Column("parts", sa.LargeBinary()),
        sa.Column("name", sa.String(100)),
        sa.CheckConstraint("size > 0", name=op.f("ck_bundles_size")),
        sa.PrimaryKeyConstraint("owner", "sha256", name="pk_bundles"),
    )
    op.create_index("ix_bundles_owner_created_at_sha256", "bundles", ["owner", "created_at", "sha256"])
    op.create_index("ix_bundles_owner_name", "bundles", ["owner", "name"], unique=True)
    op.create_index("ix_bundles_sha256", "bundles", ["sha256"])
    op.create_table(
        "bundle_uses",
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_bundle_uses_job_id"),
        sa.PrimaryKeyConstraint("job_id", "sha256", name="pk_bundle_uses"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_bundle_uses_sha256", "bundle_uses", ["sha256"])
    op.create_table(
        "schedules",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("visibility", sa.String(8), nullable=False),
        sa.Column("spec", DOCUMENT, nullable=False),
        sa.Column("schedule", DOCUMENT, nullable=False),
        sa.Column("overlap", sa.String(8), nullable=False),
        sa.Column("bundles", sa.Text(), nullable=False),
        sa.Column("state", sa.String(8), nullable=False),
        sa.Column("reason_code", sa.String(40)),
        sa.Column("reason_message", sa.Text()),
        sa.Column("next_at", sa.BigInteger()),
        sa.Column("last_due_at", sa.BigInteger()),
        sa.Column("last_job_id", sa.String(40)),
        sa.Column("replaced", sa.String(40)),
        sa.Column("skipped", sa.BigInteger(), nullable=False),
        sa.Column("refused", sa.Integer(), nullable=False),
        sa.Column("last_error", DOCUMENT),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("idempotency_key", sa.String(255)),
        sa.Column("fingerprint", sa.String(64)),
        sa.CheckConstraint("(next_at IS NOT NULL) = (state = 'active')", name=op.f("ck_schedules_due_iff_active")),
        sa.PrimaryKeyConstraint("id", name="pk_schedules"),
    )
    op.create_index("ix_schedules_key", "schedules", ["owner", "idempotency_key"], unique=True)
    op.create_index("ix_schedules_next_at", "schedules", ["next_at"])
    op.create_index("ix_schedules_owner_id", "schedules", ["owner", "id"])
    op.create_index("ix_schedules_replaced", "schedules", ["replaced"], **_where("replaced IS NOT NULL"))


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
        sa.Column("pool", DOCUMENT),
        sa.Column("holder", sa.String(255)),
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
        sa.Column("relay_lag_us", sa.BigInteger(), nullable=False),
        sa.Column("log_bytes", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("message_bytes", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("cut", sa.String(100), server_default="", nullable=False),
        sa.Column("stacks_requested_at", sa.BigInteger()),
        sa.Column("stacks", DOCUMENT),
        sa.Column("point_bytes", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("reported_at", sa.BigInteger()),
        sa.Column("running_at", sa.BigInteger()),
        sa.Column("guest", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("stopped_for", sa.String(40)),
        sa.Column("pool_devices", sa.Integer(), server_default="0", nullable=False),
        sa.Column("holder", sa.String(255)),
        sa.Column("stepped_at", sa.BigInteger()),
        sa.Column("hides_after", sa.BigInteger()),
        sa.Column("environment", DOCUMENT),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_attempts_job_id"),
        sa.ForeignKeyConstraint(["worker_id"], ["workers.id"], name="fk_attempts_worker_id"),
        sa.PrimaryKeyConstraint("id", name="pk_attempts"),
        sa.UniqueConstraint("job_id", "number", name="uq_attempts_job_id_number"),
    )
    op.create_index("ix_attempts_open", "attempts", ["worker_id"], **_where("ended_at IS NULL"))
    op.create_index("ix_attempts_stopped", "attempts", ["ended_at"], **_where("stopped_for IS NOT NULL"))
    op.create_index("uq_attempts_open_job", "attempts", ["job_id"], unique=True, **_where("ended_at IS NULL"))
    op.create_table(
        "allocations",
        sa.Column("id", BIG_KEY, nullable=False),
        sa.Column("attempt_id", BIG_KEY, nullable=False),
        sa.Column("node_rank", sa.Integer(), nullable=False),
        sa.Column("worker_id", sa.String(40), nullable=False),
        sa.Column("device", sa.String(100), nullable=False),
        sa.Column("released_at", sa.BigInteger()),
        sa.Column("kind", sa.String(4), server_default="cpu", nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.id"], name="fk_allocations_attempt_id"),
        sa.ForeignKeyConstraint(["worker_id"], ["workers.id"], name="fk_allocations_worker_id"),
        sa.PrimaryKeyConstraint("id", name="pk_allocations"),
    )
    op.create_index("ix_allocations_attempt_id", "allocations", ["attempt_id"])
    op.create_index(
        "uq_allocations_open_device",
        "allocations",
        ["worker_id", "device"],
        unique=True,
        **_where("released_at IS NULL"),
    )
    op.create_table(
        "device_days",
        sa.Column("owner", _ordered_by_bytes(100), nullable=False),
        sa.Column("label", _ordered_by_bytes(300), nullable=False),
        sa.Column("day", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(4), nullable=False),
        sa.Column("held_us", sa.BigInteger(), nullable=False),
        sa.Column("measured_us", sa.BigInteger(), nullable=False),
        sa.Column("busy_us", sa.BigInteger(), nullable=False),
        sa.Column("idle_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("owner", "label", "day", "kind", name="pk_device_days"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "attempt_uses",
        sa.Column("attempt_id", BIG_KEY, autoincrement=False, nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.Column("measured_us", sa.BigInteger(), nullable=False),
        sa.Column("busy_us", sa.BigInteger(), nullable=False),
        sa.Column("idle_us", sa.BigInteger(), nullable=False),
        sa.Column("idle_since", sa.BigInteger()),
        sa.Column("warned_at", sa.BigInteger()),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.id"], name="fk_attempt_uses_attempt_id"),
        sa.PrimaryKeyConstraint("attempt_id", name="pk_attempt_uses"),
    )


def _create_queue() -> None:
    op.create_table(
        "reservations",
        sa.Column("worker_id", sa.String(40), nullable=False),
        sa.Column("kind", sa.String(4), nullable=False),
        sa.Column("job_id", sa.String(40)),
        sa.Column("due", sa.BigInteger(), nullable=False),
        sa.Column("bound", sa.BigInteger(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_reservations_job_id"),
        sa.ForeignKeyConstraint(["worker_id"], ["workers.id"], name="fk_reservations_worker_id"),
        sa.PrimaryKeyConstraint("worker_id", "kind", name="pk_reservations"),
        sa.UniqueConstraint("job_id", name="uq_reservations_job_id"),
    )
    op.create_table(
        "usage",
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("kind", sa.String(4), nullable=False),
        sa.Column("used_s", sa.Float(53), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("owner", "kind", name="pk_usage"),
    )
    op.create_table(
        "run_lengths",
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("trainer", sa.String(40), nullable=False),
        sa.Column("last_us", sa.BigInteger(), nullable=False),
        sa.Column("before_us", sa.BigInteger()),
        sa.PrimaryKeyConstraint("owner", "trainer", name="pk_run_lengths"),
    )
    op.create_table(
        "forecast_lease",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("holder", sa.String(40), nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.Column("made_at", sa.BigInteger()),
        sa.Column("after", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name="pk_forecast_lease"),
    )
    op.create_table(
        "estimates",
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("made_at", sa.BigInteger(), nullable=False),
        sa.Column("expected", sa.BigInteger()),
        sa.Column("low", sa.BigInteger()),
        sa.Column("high", sa.BigInteger()),
        sa.Column("bucket", sa.Integer()),
        sa.PrimaryKeyConstraint("job_id", name="pk_estimates"),
    )
    op.create_table(
        "forecasts",
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("hour", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("made_at", sa.BigInteger(), nullable=False),
        sa.Column("wait_us", sa.BigInteger(), nullable=False),
        sa.Column("bucket", sa.Integer(), nullable=False),
        sa.Column("low", sa.BigInteger()),
        sa.Column("high", sa.BigInteger()),
        sa.Column("scored_at", sa.BigInteger()),
        sa.Column("log_ratio", sa.Float(53)),
        sa.Column("held", sa.Boolean()),
        sa.PrimaryKeyConstraint("job_id", "attempt", "hour", name="pk_forecasts"),
    )
    op.create_index("ix_forecasts_bucket_scored_at", "forecasts", ["bucket", "scored_at"])
    op.create_index("ix_forecasts_pending", "forecasts", ["job_id"], **_where("scored_at IS NULL"))
    op.create_table(
        "calibrations",
        sa.Column("bucket", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("level", sa.Float(53), nullable=False),
        sa.Column("scored", sa.BigInteger(), nullable=False),
        sa.Column("held", sa.Integer(), nullable=False),
        sa.Column("of", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("bucket", name="pk_calibrations"),
    )


def _create_output() -> None:
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
        "series",
        sa.Column("id", BIG_KEY, nullable=False),
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("key", sa.String(200), nullable=False),
        sa.Column("latest", sa.Float(53)),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("source", sa.String(16)),
        sa.Column("low", sa.Float(53)),
        sa.Column("high", sa.Float(53)),
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
    op.create_index("ix_point_chunks_joined", "point_chunks", ["job_id", "last"], **_where("last IS NOT NULL"))
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
        sa.Column("remeasured", DOCUMENT),
        sa.Column("saved_at", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("damaged", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("files_bytes", sa.Integer()),
        sa.Column("sent", DOCUMENT),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_checkpoints_job_id"),
        sa.PrimaryKeyConstraint("id", name="pk_checkpoints"),
        sa.UniqueConstraint("job_id", "attempt", "name", name="uq_checkpoints_job_id_attempt_name"),
    )
    op.create_index(
        "ix_checkpoints_kept", "checkpoints", ["job_id", "attempt", "saved_at"], **_where("removed_at IS NULL")
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
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_log_chunks_job_id"),
        sa.PrimaryKeyConstraint("job_id", "first", name="pk_log_chunks"),
        sqlite_with_rowid=False,
    )
    op.create_index("uq_log_chunks_job_id_position", "log_chunks", ["job_id", "position"], unique=True)
    op.create_table(
        "keep_requests",
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("worker_id", sa.String(40), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("paths", DOCUMENT, nullable=False),
        sa.Column("requested_at", sa.BigInteger(), nullable=False),
        sa.Column("answered_at", sa.BigInteger()),
        sa.Column("refused", sa.Text()),
        sa.Column("files", sa.Integer(), server_default="0", nullable=False),
        sa.Column("size", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("copied", sa.BigInteger(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_keep_requests_job_id"),
        sa.ForeignKeyConstraint(["worker_id"], ["workers.id"], name="fk_keep_requests_worker_id"),
        sa.PrimaryKeyConstraint("job_id", name="pk_keep_requests"),
    )
    op.create_index("ix_keep_requests_open", "keep_requests", ["worker_id"], **_where("answered_at IS NULL"))
    op.create_table(
        "artifacts",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("path", sa.String(1000), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("modified_ns", sa.BigInteger()),
        sa.Column("asked", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_artifacts_job_id"),
        sa.PrimaryKeyConstraint("id", name="pk_artifacts"),
        sa.UniqueConstraint("job_id", "path", name="uq_artifacts_job_id_path"),
    )
    op.create_index("ix_artifacts_sha256", "artifacts", ["sha256"])
    op.create_table(
        "media",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("key", sa.String(200), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("caption", sa.Text()),
        sa.Column("classes", DOCUMENT),
        sa.Column("data", DOCUMENT),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_media_job_id"),
        sa.PrimaryKeyConstraint("id", name="pk_media"),
        sa.UniqueConstraint("job_id", "key", "step", "number", name="uq_media_job_id_key_step_number"),
    )
    op.create_table(
        "media_pictures",
        sa.Column("media_id", sa.String(40), nullable=False),
        sa.Column("part", sa.String(16), nullable=False),
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("media_type", sa.String(20), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("width", sa.Integer(), nullable=False),
        sa.Column("height", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_media_pictures_job_id"),
        sa.ForeignKeyConstraint(["media_id"], ["media.id"], name="fk_media_pictures_media_id"),
        sa.PrimaryKeyConstraint("media_id", "part", name="pk_media_pictures"),
    )
    op.create_index("ix_media_pictures_job_id", "media_pictures", ["job_id"])
    op.create_index("ix_media_pictures_sha256", "media_pictures", ["sha256"])


def _create_sweeps_and_models() -> None:
    op.create_table(
        "sweeps",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("visibility", sa.String(8), nullable=False),
        sa.Column("spec", DOCUMENT, nullable=False),
        sa.Column("method", sa.String(16), nullable=False),
        sa.Column("monitor", sa.String(200), nullable=False),
        sa.Column("mode", sa.String(3), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("reason_code", sa.String(40), nullable=False),
        sa.Column("reason_message", sa.Text(), nullable=False),
        sa.Column("reason_since", sa.BigInteger(), nullable=False),
        sa.Column("asked", sa.String(8)),
        sa.Column("asked_to", sa.Integer(), nullable=False),
        sa.Column("total", sa.Integer(), nullable=False),
        sa.Column("next_number", sa.Integer(), nullable=False),
        sa.Column("idempotency_key", sa.String(255)),
        sa.Column("fingerprint", sa.String(64)),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("finished_at", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name="pk_sweeps"),
        sa.UniqueConstraint("owner", "idempotency_key", name="uq_sweeps_owner_idempotency_key"),
    )
    op.create_index("ix_sweeps_active", "sweeps", ["id"], **_where("state IN ('running', 'paused', 'cancelling')"))
    op.create_index("ix_sweeps_owner_id", "sweeps", ["owner", "id"])
    op.create_index("ix_sweeps_visibility_id", "sweeps", ["visibility", "id"])
    op.create_table(
        "sweep_trials",
        sa.Column("sweep_id", sa.String(40), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("point", DOCUMENT, nullable=False),
        sa.Column("job_id", sa.String(40)),
        sa.Column("outcome", sa.String(16)),
        sa.Column("value", DOCUMENT),
        sa.Column("error", sa.Text()),
        sa.Column("rungs", DOCUMENT, nullable=False),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name="fk_sweep_trials_sweep_id"),
        sa.PrimaryKeyConstraint("sweep_id", "number", name="pk_sweep_trials"),
    )
    op.create_index("ix_sweep_trials_outcome", "sweep_trials", ["sweep_id", "outcome"])
    op.create_table(
        "models",
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("visibility", sa.String(8), nullable=False),
        sa.Column("last_version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("owner", "name", name="pk_models"),
    )
    op.create_table(
        "model_versions",
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("trainer", sa.String(40), nullable=False),
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("checkpoint_id", sa.String(40), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.Integer()),
        sa.Column("metrics", DOCUMENT, nullable=False),
        sa.Column("card", DOCUMENT),
        sa.Column("files", DOCUMENT, nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("files_bytes", sa.Integer()),
        sa.Column("sent", DOCUMENT),
        sa.ForeignKeyConstraint(
            ["owner", "name"], ["models.owner", "models.name"], name="fk_model_versions_owner_name"
        ),
        sa.PrimaryKeyConstraint("owner", "name", "version", name="pk_model_versions"),
    )
    op.create_index("ix_model_versions_checkpoint_id", "model_versions", ["checkpoint_id"])


def _create_team() -> None:
    op.create_table(
        "users",
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("disabled_at", sa.BigInteger()),
        sa.PrimaryKeyConstraint("name", name="pk_users"),
    )
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
    op.create_index("ix_tokens_made_by", "tokens", ["made_by"])
    op.create_index("ix_tokens_user", "tokens", ["user"])
    op.create_table(
        "browser_sessions",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("credential", sa.String(64), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("csrf_digest", sa.String(64), nullable=False),
        sa.Column("used_at", sa.BigInteger()),
        sa.Column("address", sa.String(64), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_browser_sessions"),
    )
    op.create_index("ix_browser_sessions_expires_at", "browser_sessions", ["expires_at"])
    op.create_table(
        "login_codes",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("credential", sa.String(64), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_login_codes"),
    )
    op.create_index("ix_login_codes_expires_at", "login_codes", ["expires_at"])
    op.create_table(
        "failed_logins",
        sa.Column("address", sa.String(64), nullable=False),
        sa.Column("forgotten_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("address", name="pk_failed_logins"),
    )
    op.create_index("ix_failed_logins_forgotten_at", "failed_logins", ["forgotten_at"])
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
        "preferences",
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("document", DOCUMENT, nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("owner", name="pk_preferences"),
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


def _create_rest() -> None:
    op.create_table(
        "job_counts",
        sa.Column("id", BIG_KEY, nullable=False),
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("visibility", sa.String(8), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("jobs", sa.BigInteger(), nullable=False),
        sa.Column("archived", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_job_counts"),
    )
    op.create_table(
        "stored_counts",
        sa.Column("id", BIG_KEY, nullable=False),
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("files", sa.BigInteger(), nullable=False),
        sa.Column("written", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_stored_counts"),
    )
    op.create_index("ix_stored_counts_owner", "stored_counts", ["owner", "files", "written"])
    op.create_table(
        "notification_targets",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("shown", sa.Text(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.Column("key_id", sa.String(16), nullable=False),
        sa.Column("kinds", sa.Text(), nullable=False),
        sa.Column("jobs", sa.String(8), nullable=False),
        sa.Column("scope", sa.String(8), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("delivered_at", sa.BigInteger()),
        sa.Column("error", sa.Text()),
        sa.Column("failed_at", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name="pk_notification_targets"),
        sa.UniqueConstraint("owner", "name", name="uq_notification_targets_owner"),
    )
    op.create_index("ix_notification_targets_scope", "notification_targets", ["scope"])
    op.create_table(
        "signals",
        sa.Column("id", BIG_KEY, nullable=False),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("visibility", sa.String(8), nullable=False),
        sa.Column("subject", sa.String(40), nullable=False),
        sa.Column("notify", DOCUMENT),
        sa.Column("data", DOCUMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_signals"),
    )
    op.create_index("ix_signals_owner", "signals", ["owner", "id"])
    op.create_table(
        "messages",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("target_id", sa.String(40), nullable=False),
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("subject", sa.String(40), nullable=False),
        sa.Column("body", DOCUMENT, nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_at", sa.BigInteger()),
        sa.Column("leased_until", sa.BigInteger()),
        sa.Column("delivered_at", sa.BigInteger()),
        sa.Column("error", sa.Text()),
        sa.PrimaryKeyConstraint("id", name="pk_messages"),
    )
    op.create_index("ix_messages_created_at", "messages", ["created_at"])
    op.create_index("ix_messages_next_at", "messages", ["next_at"], **_where("next_at IS NOT NULL"))
    op.create_index("ix_messages_owner", "messages", ["owner", "created_at"])
    op.create_index("ix_messages_target_id", "messages", ["target_id", "id"])
    op.create_table(
        "service",
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("blobs", sa.String(5000)),
        sa.Column("line_swept_at", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("controller_seen_at", sa.BigInteger(), server_default="0", nullable=False),
        sa.CheckConstraint("number = 1", name=op.f("ck_service_one_row")),
        sa.PrimaryKeyConstraint("number", name="pk_service"),
    )


def _create_triggers() -> None:
    for name, (when, statement) in _triggers().items():
        if _is_postgresql():
            body = f"BEGIN {statement}; RETURN NULL; END"
            op.execute(f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")
            op.execute(f"CREATE TRIGGER {name} AFTER {when} EXECUTE FUNCTION {name}()")
        else:
            op.execute(f"CREATE TRIGGER {name} AFTER {when} BEGIN {statement}; END")


def _triggers() -> dict[str, tuple[str, str]]:
    """Returns when each trigger fires and what it executes, by the name of the trigger."""
    jobs, stored = (
        (_jobs_on_postgresql, _stored_on_postgresql) if _is_postgresql() else (_jobs_on_sqlite, _stored_on_sqlite)
    )
    found = {f"count_jobs_{event}": each for event, each in jobs().items()}
    for table, counted in _tables().items():
        found |= {f"count_stored_{table}_{event}": each for event, each in stored(table, counted).items()}
    return found | {"count_stored_jobs_cut": _cut()}


def _jobs_on_sqlite() -> dict[str, tuple[str, str]]:
    old, new = _row("OLD", -1), _row("NEW", 1)
    columns = ", ".join(each.split()[0] for each in COUNTED_OF_JOB.values())
    return {
        "insert": ("INSERT ON jobs", f"{_add_jobs()} VALUES {new}"),
        "update": (f"UPDATE OF {columns} ON jobs", f"{_add_jobs()} VALUES {old}, {new}"),
        "delete": ("DELETE ON jobs", f"{_add_jobs()} VALUES {old}"),
    }


def _jobs_on_postgresql() -> dict[str, tuple[str, str]]:
    values = ", ".join(COUNTED_OF_JOB.values())
    some = f"{_add_jobs()} SELECT {values}, {{}} FROM changed GROUP BY {values}"  # noqa: S608 - no values of anybody are in it
    changed = " OR ".join(f"(OLD.{each}) IS DISTINCT FROM (NEW.{each})" for each in COUNTED_OF_JOB.values())
    return {
        "insert": ("INSERT ON jobs REFERENCING NEW TABLE AS changed FOR EACH STATEMENT", some.format("count(*)")),
        "update": (
            f"UPDATE ON jobs FOR EACH ROW WHEN ({changed})",
            f"{_add_jobs()} VALUES {_row('OLD', -1)}, {_row('NEW', 1)}",
        ),
        "delete": ("DELETE ON jobs REFERENCING OLD TABLE AS changed FOR EACH STATEMENT", some.format("-count(*)")),
    }


def _add_jobs() -> str:
    return f"INSERT INTO job_counts ({', '.join(COUNTED_OF_JOB)}, jobs)"


def _row(row: str, jobs: int) -> str:
    return f"({', '.join(f'{row}.{each}' for each in COUNTED_OF_JOB.values())}, {jobs})"


def _tables() -> dict[str, Counted]:
    output = ("point_bytes", "log_bytes", "message_bytes")
    # The other events count with their attempts, or are as many as its states.
    asked = f"{_requester()} IS NOT NULL"
    return {
        "jobs": Counted(OWN, "written", ("spec", "notes", "card"), _bytes("spec", "notes", "card")),
        "sweeps": Counted(OWN, "written", ("spec",), _bytes("spec")),
        "sweep_trials": Counted(OF_SWEEP, "written", ("point",), _bytes("point")),
        "schedules": Counted(OWN, "written", ("spec",), _bytes("spec")),
        "preferences": Counted(OWN, "written", ("document",), _bytes("document")),
        "bundles": Counted(OWN, "files", ("size",)),
        "checkpoints": Counted(OF_JOB, "files", ("size",)),
        "artifacts": Counted(OF_JOB, "files", ("size",)),
        "media": Counted(OF_JOB, "files", ("size",)),
        "attempts": Counted(OF_JOB, "files", output, _output()),
        "job_events": Counted(OF_JOB, "written", (), f"{ROW_BYTES} + {_bytes('data')}", asked),
        # Nobody's entries are failed logins.
        "audit": Counted("{row}.who", "written", (), f"{ROW_BYTES} + {_bytes('object')}", "{row}.who <> ''"),
    }


def _requester() -> str:
    """Returns the expression of who asked for an event. A text that is no JSON has none."""
    return (
        "{row}.data ->> 'by'"
        if _is_postgresql()
        else ("CASE WHEN json_valid({row}.data) THEN json_extract({row}.data, '$.by') END")
    )


def _bytes(*columns: str) -> str:
    """Returns the expression of how many bytes the texts in these columns have."""
    of = "octet_length({{row}}.{0}::text)" if _is_postgresql() else "length(CAST({{row}}.{0} AS BLOB))"
    return " + ".join(f"coalesce({of.format(column)}, 0)" for column in columns)


def _output() -> str:
    """Returns the expression of how many bytes of an attempt's output are left after its job was trimmed."""
    cut = f"{_least()}({{row}}.{{0}}, (SELECT {{1}} FROM jobs WHERE jobs.id = {{row}}.job_id))"  # noqa: S608 - no values
    log = cut.replace("{0}", "log_bytes").replace("{1}", "log_cut_to")
    messages = cut.replace("{0}", "message_bytes").replace("{1}", "events_cut_to")
    return f"{{row}}.point_bytes + {log} + {messages}"


def _least() -> str:
    return "least" if _is_postgresql() else "min"


def _stored_on_sqlite(table: str, counted: Counted) -> dict[str, tuple[str, str]]:
    old, new = _size(counted, "OLD"), _size(counted, "NEW")
    found = {
        "insert": (f"INSERT ON {table} WHEN {_counts(counted, 'NEW')}", _add(counted, new, row="NEW")),
        "delete": (f"DELETE ON {table} WHEN {_counts(counted, 'OLD')}", _add(counted, f"-{old}", row="OLD")),
    }
    if counted.columns:
        when = f"UPDATE OF {', '.join(counted.columns)} ON {table} WHEN {new} <> {old}"
        found["update"] = (when, _add(counted, f"{new} - {old}", row="NEW"))
    return found


def _stored_on_postgresql(table: str, counted: Counted) -> dict[str, tuple[str, str]]:
    old, new = _size(counted, "OLD"), _size(counted, "NEW")
    each = "REFERENCING {} TABLE AS changed FOR EACH STATEMENT"
    found = {
        "insert": (f"INSERT ON {table} {each.format('NEW')}", _add_changed(counted, sign="")),
        "delete": (f"DELETE ON {table} {each.format('OLD')}", _add_changed(counted, sign="-")),
    }
    if counted.columns:
        statement = f"IF {new} <> {old} THEN {_add(counted, f'{new} - {old}', row='NEW')}; END IF"
        found["update"] = (f"UPDATE OF {', '.join(counted.columns)} ON {table} FOR EACH ROW", statement)
    return found


def _add_changed(counted: Counted, *, sign: str) -> str:
    """Returns the statement that counts all rows that a statement has changed."""
    size = f"sum({sign}{_size(counted, 'changed')})"
    where = f" WHERE {_counts(counted, 'changed')}" if counted.condition else ""
    # Grouped by number: the owner may be a query.
    return f"{_add(counted, size, row='changed')} FROM changed{where} GROUP BY 1 HAVING {size} <> 0"


def _add(counted: Counted, size: str, *, row: str) -> str:
    """Returns the beginning of a statement that counts `size`: all of it, where that is of the row of a trigger."""
    files, written = (size, "0") if counted.kind == "files" else ("0", size)
    return (
        f"INSERT INTO stored_counts (owner, files, written) SELECT {counted.owner.format(row=row)}, {files}, {written}"
    )


def _size(counted: Counted, row: str) -> str:
    return f"({counted.size.format(row=row)})"


def _counts(counted: Counted, row: str) -> str:
    return counted.condition.format(row=row) if counted.condition else f"{_size(counted, row)} <> 0"


def _cut() -> tuple[str, str]:
    """Returns when a job is trimmed, and what a trigger does then."""
    left = " + ".join(
        f"{_least()}(a.{size}, NEW.{cut}) - {_least()}(a.{size}, OLD.{cut})"
        for size, cut in (("log_bytes", "log_cut_to"), ("message_bytes", "events_cut_to"))
    )
    add = (
        f"INSERT INTO stored_counts (owner, files, written) SELECT NEW.owner, sum({left}), 0 FROM attempts AS a"  # noqa: S608 - no values
        f" WHERE a.job_id = NEW.id HAVING sum({left}) <> 0"
    )
    return "UPDATE OF log_cut_to, events_cut_to ON jobs FOR EACH ROW", add
