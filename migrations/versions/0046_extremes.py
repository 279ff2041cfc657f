"""The least and the greatest value of each metric

Revision ID: 0046
Revises: 0045

Series that jobs have logged before have none.
"""

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits

revision = "0046"
down_revision = "0045"
branch_labels = None
depends_on = None


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.add_column("series", sa.Column("low", sa.Float(53), nullable=True))
    op.add_column("series", sa.Column("high", sa.Float(53), nullable=True))


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.drop_column("series", "high")
    op.drop_column("series", "low")
