"""What a retry finds in its working folder is noted with the job

Revision ID: 0054
Revises: 0053

Retries that were there before begin with the code and their checkpoint, as they did.
"""

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits

revision = "0054"
down_revision = "0053"
branch_labels = None
depends_on = None


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.add_column("jobs", sa.Column("begins_with", sa.String(10), nullable=True))


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.drop_column("jobs", "begins_with")
