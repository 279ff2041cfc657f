"""How the devices of workers were used

Revision ID: 0012
Revises: 0011
"""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from migrations.turns import limit_lock_waits

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.create_table(
        "device_samples",
        sa.Column("worker_id", sa.String(40), nullable=False),
        sa.Column("resolution", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("begins", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("devices", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=False),
        sa.ForeignKeyConstraint(["worker_id"], ["workers.id"], name="fk_device_samples_worker_id"),
        sa.PrimaryKeyConstraint("worker_id", "resolution", "begins", name="pk_device_samples"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.drop_table("device_samples")
