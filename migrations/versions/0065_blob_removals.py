"""The tables of blobs that are removed, and of who keeps them

Revision ID: 0065
Revises: 0064
"""

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits

revision = "0065"
down_revision = "0064"
branch_labels = None
depends_on = None


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.create_table(
        "removed_blobs",
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("removed_by", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name="pk_removed_blobs"),
    )
    op.create_table(
        "blob_holds",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("held_until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_blob_holds"),
    )


def downgrade() -> None:
    op.drop_table("blob_holds")
    op.drop_table("removed_blobs")
