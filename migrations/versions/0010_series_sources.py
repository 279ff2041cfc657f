"""Where a series and a checkpoint come from, if their script does not report them

Revision ID: 0010
Revises: 0009
"""

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.add_column("series", sa.Column("source", sa.String(16), nullable=True))
    op.add_column("checkpoints", sa.Column("source", sa.String(16), nullable=True))


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.drop_column("checkpoints", "source")
    op.drop_column("series", "source")
