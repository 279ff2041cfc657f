"""What the page keeps for each user

Revision ID: 0042
Revises: 0040
"""

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits
from store.db.database import Document

revision = "0042"
down_revision = "0040"
branch_labels = None
depends_on = None


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.create_table(
        "preferences",
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("document", Document, nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("owner", name="pk_preferences"),
    )


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.drop_table("preferences")
