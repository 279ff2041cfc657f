"""The codes by which machines become workers and users log in, and when a worker was removed

Revision ID: 0064
Revises: 0063
"""

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits

revision = "0064"
down_revision = "0063"
branch_labels = None
depends_on = None


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.create_table(
        "join_codes",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("made_by", sa.String(100), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("used_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("digest", name="pk_join_codes"),
    )
    op.create_index("ix_join_codes_expires_at", "join_codes", ["expires_at"])
    op.add_column("workers", sa.Column("removed_at", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    op.drop_column("workers", "removed_at")
    op.drop_index("ix_join_codes_expires_at", "join_codes")
    op.drop_table("join_codes")
