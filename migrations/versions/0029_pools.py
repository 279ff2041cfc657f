"""Pools: what a worker that stands for a cluster's partition reports, who holds it, and what its attempts were promised

Revision ID: 0029
Revises: 0028
"""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from migrations.turns import limit_lock_waits

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

DOCUMENT = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.add_column("workers", sa.Column("pool", DOCUMENT, nullable=True))
    op.add_column("attempts", sa.Column("pool_devices", sa.Integer(), server_default="0", nullable=False))
    for table in ("workers", "attempts"):
        op.add_column(table, sa.Column("holder", sa.String(255), nullable=True))


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    for table in ("attempts", "workers"):
        op.drop_column(table, "holder")
    op.drop_column("attempts", "pool_devices")
    op.drop_column("workers", "pool")
