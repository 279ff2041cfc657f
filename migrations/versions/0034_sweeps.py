"""Sweeps, their trials, and which of them a job is

Revision ID: 0034
Revises: 0033
"""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from migrations.turns import limit_lock_waits

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None

DOCUMENT = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
ACTIVE = sa.text("state IN ('running', 'paused', 'cancelling')")
OF_SWEEP = sa.text("sweep_id IS NOT NULL")


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
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
        sa.Column("asked", sa.String(8), nullable=True),
        sa.Column("asked_to", sa.Integer(), nullable=False),
        sa.Column("total", sa.Integer(), nullable=False),
        sa.Column("next_number", sa.Integer(), nullable=False),
        sa.Column("idempotency_key", sa.String(255), nullable=True),
        sa.Column("fingerprint", sa.String(64), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_sweeps"),
        sa.UniqueConstraint("owner", "idempotency_key", name="uq_sweeps_owner_idempotency_key"),
    )
    op.create_index("ix_sweeps_active", "sweeps", ["id"], sqlite_where=ACTIVE, postgresql_where=ACTIVE)
    op.create_index("ix_sweeps_owner_id", "sweeps", ["owner", "id"])
    op.create_index("ix_sweeps_visibility_id", "sweeps", ["visibility", "id"])
    op.create_table(
        "sweep_trials",
        sa.Column("sweep_id", sa.String(40), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("point", DOCUMENT, nullable=False),
        sa.Column("job_id", sa.String(40), nullable=True),
        sa.Column("outcome", sa.String(16), nullable=True),
        sa.Column("value", DOCUMENT, nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("rungs", DOCUMENT, nullable=False),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name="fk_sweep_trials_sweep_id"),
        sa.PrimaryKeyConstraint("sweep_id", "number", name="pk_sweep_trials"),
    )
    op.create_index("ix_sweep_trials_outcome", "sweep_trials", ["sweep_id", "outcome"])
    op.add_column("jobs", sa.Column("sweep_id", sa.String(40), nullable=True))
    op.add_column("jobs", sa.Column("trial", sa.Integer(), nullable=True))
    op.create_index(
        "ix_jobs_of_sweep", "jobs", ["sweep_id", "state", "id"], sqlite_where=OF_SWEEP, postgresql_where=OF_SWEEP
    )


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.drop_index("ix_jobs_of_sweep", "jobs")
    op.drop_column("jobs", "trial")
    op.drop_column("jobs", "sweep_id")
    op.drop_table("sweep_trials")
    op.drop_table("sweeps")
