"""Intents: pause and preemption of a job, drain of a worker; to what logs and events were cut

Revision ID: 0004
Revises: 0003
"""

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.add_column("jobs", sa.Column("pause_requested_at", sa.BigInteger(), nullable=True))
    op.add_column("jobs", sa.Column("preempt_requested_at", sa.BigInteger(), nullable=True))
    op.add_column("jobs", sa.Column("preempted_for", sa.String(40), nullable=True))
    for name in ("log_cut_to", "events_cut_to"):
        op.add_column("jobs", sa.Column(name, sa.BigInteger(), nullable=False, server_default=str(2**62)))
        op.create_index(
            f"ix_jobs_{name}_finished_at",
            "jobs",
            [name, "finished_at"],
            sqlite_where=sa.text("finished_at IS NOT NULL"),
            postgresql_where=sa.text("finished_at IS NOT NULL"),
        )
    op.add_column("workers", sa.Column("drain_requested_at", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.drop_column("workers", "drain_requested_at")
    for name in ("events_cut_to", "log_cut_to"):
        op.drop_index(f"ix_jobs_{name}_finished_at", "jobs")
        op.drop_column("jobs", name)
    op.drop_column("jobs", "preempted_for")
    op.drop_column("jobs", "preempt_requested_at")
    op.drop_column("jobs", "pause_requested_at")
