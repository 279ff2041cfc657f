"""Estimates of starts with their scores, what owners had of the devices, and stops of idle jobs

Revision ID: 0048
Revises: 0047

What attempts that have ended before had of the devices is not counted by day.
"""

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits

revision = "0048"
down_revision = "0047"
branch_labels = None
depends_on = None

IS_PENDING = sa.text("scored_at IS NULL")


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.add_column("jobs", sa.Column("idle_requested_at", sa.BigInteger(), nullable=True))
    op.add_column("jobs", sa.Column("idle_timeout_s", sa.Integer(), nullable=True))
    op.add_column("attempts", sa.Column("stepped_at", sa.BigInteger(), nullable=True))
    _create_estimates()
    op.create_table(
        "device_days",
        sa.Column("owner", _by_code_points(100), nullable=False),
        sa.Column("label", _by_code_points(300), nullable=False),
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
        sa.Column(
            "attempt_id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.Column("measured_us", sa.BigInteger(), nullable=False),
        sa.Column("busy_us", sa.BigInteger(), nullable=False),
        sa.Column("idle_us", sa.BigInteger(), nullable=False),
        sa.Column("idle_since", sa.BigInteger(), nullable=True),
        sa.Column("warned_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.id"], name="fk_attempt_uses_attempt_id"),
        sa.PrimaryKeyConstraint("attempt_id", name="pk_attempt_uses"),
    )


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    for name in ("attempt_uses", "device_days", "calibrations", "forecasts", "estimates", "forecast_lease"):
        op.drop_table(name)
    op.drop_column("attempts", "stepped_at")
    op.drop_column("jobs", "idle_timeout_s")
    op.drop_column("jobs", "idle_requested_at")


def _create_estimates() -> None:
    op.create_table(
        "forecast_lease",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("holder", sa.String(40), nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.Column("made_at", sa.BigInteger(), nullable=True),
        sa.Column("after", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_forecast_lease"),
    )
    op.create_table(
        "estimates",
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("made_at", sa.BigInteger(), nullable=False),
        sa.Column("expected", sa.BigInteger(), nullable=True),
        sa.Column("low", sa.BigInteger(), nullable=True),
        sa.Column("high", sa.BigInteger(), nullable=True),
        sa.Column("bucket", sa.Integer(), nullable=True),
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
        sa.Column("low", sa.BigInteger(), nullable=True),
        sa.Column("high", sa.BigInteger(), nullable=True),
        sa.Column("scored_at", sa.BigInteger(), nullable=True),
        sa.Column("log_ratio", sa.Float(53), nullable=True),
        sa.Column("held", sa.Boolean(), nullable=True),
        sa.PrimaryKeyConstraint("job_id", "attempt", "hour", name="pk_forecasts"),
    )
    op.create_index(
        "ix_forecasts_pending", "forecasts", ["job_id"], sqlite_where=IS_PENDING, postgresql_where=IS_PENDING
    )
    op.create_index("ix_forecasts_bucket_scored_at", "forecasts", ["bucket", "scored_at"])
    op.create_table(
        "calibrations",
        sa.Column("bucket", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("level", sa.Float(53), nullable=False),
        sa.Column("scored", sa.BigInteger(), nullable=False),
        sa.Column("held", sa.Integer(), nullable=False),
        sa.Column("of", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("bucket", name="pk_calibrations"),
    )


def _by_code_points(length: int) -> sa.types.TypeEngine[str]:
    return sa.String(length, collation="C").with_variant(sa.String(length), "sqlite")
