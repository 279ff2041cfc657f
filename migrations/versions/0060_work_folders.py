"""Workers tell how large the working folders of jobs are

Revision ID: 0060
Revises: 0056
"""

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits

revision = "0060"
down_revision = "0056"
branch_labels = None
depends_on = None


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.create_table(
        "work_folders",
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("worker_id", sa.String(40), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("measured_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "worker_id", name="pk_work_folders"),
    )
    op.create_index("ix_work_folders_worker_id", "work_folders", ["worker_id"])


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.drop_table("work_folders")
