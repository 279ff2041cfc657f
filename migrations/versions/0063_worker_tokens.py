"""The tokens of remote workers, and which workers are remote

Revision ID: 0063
Revises: 0062
"""

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits

revision = "0063"
down_revision = "0062"
branch_labels = None
depends_on = None


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.create_table(
        "worker_tokens",
        sa.Column("worker_id", sa.String(40), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.Column("boot", sa.String(64), nullable=True),
        sa.Column("refused_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("worker_id", name="pk_worker_tokens"),
    )
    op.add_column("workers", sa.Column("remote", sa.Boolean(), nullable=False, server_default=sa.false()))


def downgrade() -> None:
    op.drop_column("workers", "remote")
    op.drop_table("worker_tokens")
