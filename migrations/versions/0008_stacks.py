"""The stacks of the ranks of running attempts: who asked, and the answer

Revision ID: 0008
Revises: 0007
"""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from migrations.turns import limit_lock_waits

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

DOCUMENT = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.add_column("attempts", sa.Column("stacks_requested_at", sa.BigInteger(), nullable=True))
    op.add_column("attempts", sa.Column("stacks", DOCUMENT, nullable=True))


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.drop_column("attempts", "stacks")
    op.drop_column("attempts", "stacks_requested_at")
