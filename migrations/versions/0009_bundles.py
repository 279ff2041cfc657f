"""Bundles: what users have uploaded, and which jobs name it

Revision ID: 0009
Revises: 0008
"""

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.create_table(
        "bundles",
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("files", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("last_used_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("owner", "sha256", name="pk_bundles"),
        sa.CheckConstraint("size > 0", name="ck_bundles_size"),
    )
    op.create_index("ix_bundles_sha256", "bundles", ["sha256"])
    op.create_index("ix_bundles_owner_created_at_sha256", "bundles", ["owner", "created_at", "sha256"])
    op.create_table(
        "bundle_uses",
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_bundle_uses_job_id"),
        sa.PrimaryKeyConstraint("job_id", "sha256", name="pk_bundle_uses"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_bundle_uses_sha256", "bundle_uses", ["sha256"])


def downgrade() -> None:
    """The blobs of bundles stay: an older program would not know that nothing needs them."""
    limit_lock_waits(op.get_bind())
    op.drop_table("bundle_uses")
    op.drop_table("bundles")
