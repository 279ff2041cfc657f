"""How many bytes of metric points each attempt has stored

Revision ID: 0017
Revises: 0016
"""

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

FILL = """
UPDATE attempts SET point_bytes = 24 * (
    SELECT COALESCE(SUM(count), 0) FROM point_chunks
    WHERE point_chunks.job_id = attempts.job_id AND point_chunks.attempt = attempts.number
)
"""
"""A packed point has 24 bytes."""


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.add_column("attempts", sa.Column("point_bytes", sa.BigInteger(), nullable=False, server_default="0"))
    op.execute(sa.text(FILL))


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.drop_column("attempts", "point_bytes")
