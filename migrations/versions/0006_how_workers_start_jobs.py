"""How workers start jobs: warm or cold

Revision ID: 0006
Revises: 0005
"""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from migrations.turns import limit_lock_waits

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

DOCUMENT = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.add_column("workers", sa.Column("starts", DOCUMENT, nullable=True))


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.drop_column("workers", "starts")
