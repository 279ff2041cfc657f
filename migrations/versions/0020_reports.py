"""When an attempt last reported something, by the database's clock. Attempts that run say so at their next report

Revision ID: 0020
Revises: 0019
"""

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.add_column("attempts", sa.Column("reported_at", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.drop_column("attempts", "reported_at")
