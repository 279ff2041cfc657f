"""Where the attempts of a job pause by themselves: trials of a sweep wait there for their promotion

Revision ID: 0038
Revises: 0037
"""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from migrations.turns import limit_lock_waits

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None

DOCUMENT = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.add_column("jobs", sa.Column("pause_at", DOCUMENT, nullable=True))


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.drop_column("jobs", "pause_at")
