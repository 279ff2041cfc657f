"""What the best checkpoint of a job measures when it is evaluated again, in one process after training

Revision ID: 0032
Revises: 0031
"""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from migrations.turns import limit_lock_waits

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None

DOCUMENT = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.add_column("checkpoints", sa.Column("remeasured", DOCUMENT, nullable=True))


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.drop_column("checkpoints", "remeasured")
