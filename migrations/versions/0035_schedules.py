"""Schedules, whose runs are jobs; and when a controller last ran

Revision ID: 0035
Revises: 0034
"""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from migrations.turns import limit_lock_waits

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None

DOCUMENT = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
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
        sa.Column("reason_code", sa.String(40), nullable=True),
        sa.Column("reason_message", sa.Text(), nullable=True),
        sa.Column("next_at", sa.BigInteger(), nullable=True),
        sa.Column("last_due_at", sa.BigInteger(), nullable=True),
        sa.Column("last_job_id", sa.String(40), nullable=True),
        sa.Column("replaced", sa.String(40), nullable=True),
        sa.Column("skipped", sa.BigInteger(), nullable=False),
        sa.Column("refused", sa.Integer(), nullable=False),
        sa.Column("last_error", DOCUMENT, nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("(next_at IS NOT NULL) = (state = 'active')", name="ck_schedules_due_iff_active"),
        sa.PrimaryKeyConstraint("id", name="pk_schedules"),
    )
    op.create_index("ix_schedules_next_at", "schedules", ["next_at"])
    op.create_index("ix_schedules_owner_id", "schedules", ["owner", "id"])
    _create_partial("ix_schedules_replaced", "schedules", ["replaced"], where="replaced IS NOT NULL")
    op.add_column("jobs", sa.Column("schedule_id", sa.String(40), nullable=True))
    op.add_column("jobs", sa.Column("due_at", sa.BigInteger(), nullable=True))
    _create_partial(
        "ix_jobs_by_schedule", "jobs", ["schedule_id", "due_at"], where="schedule_id IS NOT NULL", unique=True
    )
    op.add_column("service", sa.Column("controller_seen_at", sa.BigInteger(), nullable=False, server_default="0"))


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.drop_column("service", "controller_seen_at")
    op.drop_index("ix_jobs_by_schedule", "jobs")
    op.drop_column("jobs", "due_at")
    op.drop_column("jobs", "schedule_id")
    op.drop_table("schedules")


def _create_partial(name: str, table: str, columns: list[str], *, where: str, unique: bool = False) -> None:
    condition = sa.text(where)
    op.create_index(name, table, columns, unique=unique, sqlite_where=condition, postgresql_where=condition)
