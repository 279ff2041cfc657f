"""What jobs need of a host, and whose jobs a worker takes

Revision ID: 0066
Revises: 0063
"""

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits

revision = "0066"
down_revision = "0063"
branch_labels = None
depends_on = None


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.add_column("jobs", sa.Column("needs", sa.Text(), nullable=True))
    op.add_column("workers", sa.Column("users", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("workers", "users")
    op.drop_column("jobs", "needs")
