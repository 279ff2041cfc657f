"""Which machine has used a code, what it got, and whose jobs its worker takes

Revision ID: 0068
Revises: 0066
"""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from migrations.turns import limit_lock_waits

revision = "0068"
down_revision = "0066"
branch_labels = None
depends_on = None

DOCUMENT = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.add_column("join_codes", sa.Column("users", DOCUMENT))
    op.add_column("join_codes", sa.Column("used_by", sa.String(64)))
    op.add_column("join_codes", sa.Column("given", sa.String(40)))


def downgrade() -> None:
    for name in ("given", "used_by", "users"):
        op.drop_column("join_codes", name)
