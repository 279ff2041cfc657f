"""The environment in which an attempt ran is noted with it

Revision ID: 0055
Revises: 0054
"""

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits
from store.db.database import Document

revision = "0055"
down_revision = "0054"
branch_labels = None
depends_on = None


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.add_column("attempts", sa.Column("environment", Document, nullable=True))


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.drop_column("attempts", "environment")
