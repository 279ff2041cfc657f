"""Files of a job's working folder are kept beside its artifacts, also on request

Revision ID: 0051
Revises: 0050
"""

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits
from store.db.database import Document

revision = "0051"
down_revision = "0050"
branch_labels = None
depends_on = None


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.add_column("artifacts", sa.Column("modified_ns", sa.BigInteger(), nullable=True))
    op.add_column("artifacts", sa.Column("asked", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.create_table(
        "keep_requests",
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("worker_id", sa.String(40), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("paths", Document, nullable=False),
        sa.Column("requested_at", sa.BigInteger(), nullable=False),
        sa.Column("answered_at", sa.BigInteger(), nullable=True),
        sa.Column("refused", sa.Text(), nullable=True),
        sa.Column("files", sa.Integer(), server_default="0", nullable=False),
        sa.Column("size", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("copied", sa.BigInteger(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_keep_requests_job_id"),
        sa.ForeignKeyConstraint(["worker_id"], ["workers.id"], name="fk_keep_requests_worker_id"),
        sa.PrimaryKeyConstraint("job_id", name="pk_keep_requests"),
    )
    unanswered = sa.text("answered_at IS NULL")
    op.create_index(
        "ix_keep_requests_open",
        "keep_requests",
        ["worker_id"],
        sqlite_where=unanswered,
        postgresql_where=unanswered,
    )


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.drop_table("keep_requests")
    op.drop_column("artifacts", "asked")
    op.drop_column("artifacts", "modified_ns")
