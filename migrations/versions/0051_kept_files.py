"""Files of a job's working folder are kept beside its artifacts

Revision ID: 0051
Revises: 0049
"""

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits

revision = "0051"
down_revision = "0049"
branch_labels = None
depends_on = None


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.add_column("artifacts", sa.Column("modified_ns", sa.BigInteger(), nullable=True))
    op.add_column("artifacts", sa.Column("asked", sa.Boolean(), server_default=sa.false(), nullable=False))


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.drop_column("artifacts", "asked")
    op.drop_column("artifacts", "modified_ns")
