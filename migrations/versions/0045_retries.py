"""An index of the retries of a job

Revision ID: 0045
Revises: 0044
"""

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits

revision = "0045"
down_revision = "0044"
branch_labels = None
depends_on = None

IS_RETRY = sa.text("retry_of IS NOT NULL")


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.create_index("ix_jobs_retry_of", "jobs", ["retry_of", "id"], sqlite_where=IS_RETRY, postgresql_where=IS_RETRY)


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.drop_index("ix_jobs_retry_of", "jobs")
