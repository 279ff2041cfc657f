"""The model card of a run, and checkpoints that were removed

Revision ID: 0003
Revises: 0002
"""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from migrations.turns import limit_lock_waits

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

DOCUMENT = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.add_column("jobs", sa.Column("card", DOCUMENT, nullable=True))
    op.add_column("checkpoints", sa.Column("removed_at", sa.BigInteger(), nullable=True))
    op.create_index(
        "ix_checkpoints_kept",
        "checkpoints",
        ["job_id", "attempt", "step"],
        sqlite_where=sa.text("removed_at IS NULL"),
        postgresql_where=sa.text("removed_at IS NULL"),
    )


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.drop_index("ix_checkpoints_kept", "checkpoints")
    # Their bytes are gone, and older programs would list them.
    op.execute("DELETE FROM checkpoints WHERE removed_at IS NOT NULL")
    op.drop_column("checkpoints", "removed_at")
    op.drop_column("jobs", "card")
