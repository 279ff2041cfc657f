"""How long a cancelled attempt may take to stop

Revision ID: 0018
Revises: 0017
"""

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.add_column("jobs", sa.Column("cancel_grace_s", sa.Integer(), nullable=True))


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.drop_column("jobs", "cancel_grace_s")
