"""When and from where a browser session was used last

Revision ID: 0044
Revises: 0042
"""

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits

revision = "0044"
down_revision = "0042"
branch_labels = None
depends_on = None


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.add_column("browser_sessions", sa.Column("used_at", sa.BigInteger(), nullable=True))
    op.add_column("browser_sessions", sa.Column("address", sa.String(64), nullable=False, server_default=""))


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.drop_column("browser_sessions", "address")
    op.drop_column("browser_sessions", "used_at")
