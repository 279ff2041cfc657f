"""The table of the lists of jobs that users keep under a name

Revision ID: 0062
Revises: 0060
"""

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits

revision = "0062"
down_revision = "0060"
branch_labels = None
depends_on = None


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.create_table(
        "saved_views",
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("query", sa.Text(), nullable=False),
        sa.Column("visibility", sa.String(8), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("owner", "name", name="pk_saved_views"),
    )
    op.create_index("ix_saved_views_visibility", "saved_views", ["visibility"])


def downgrade() -> None:
    op.drop_index("ix_saved_views_visibility", "saved_views")
    op.drop_table("saved_views")
