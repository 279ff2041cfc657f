"""What jobs need of a host, and whose jobs a worker takes

Revision ID: 0066
Revises: 0065
"""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from migrations.turns import limit_lock_waits

revision = "0066"
down_revision = "0065"
branch_labels = None
depends_on = None

DOCUMENT = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.add_column("jobs", sa.Column("needs", DOCUMENT))
    op.add_column("workers", sa.Column("users", DOCUMENT))


def downgrade() -> None:
    op.drop_column("workers", "users")
    op.drop_column("jobs", "needs")
