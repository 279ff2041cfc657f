"""The second secret of a browser's session, of which its digest is stored

Revision ID: 0016
Revises: 0015
"""

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

SESSIONS = sa.table("browser_sessions")


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    # A session of before has no second secret, so nothing could open it any more: its user logs in again.
    op.execute(sa.delete(SESSIONS))
    op.add_column("browser_sessions", sa.Column("csrf_digest", sa.String(64), nullable=False, server_default=""))


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    # The version before would open a session with the cookie alone.
    op.execute(sa.delete(SESSIONS))
    op.drop_column("browser_sessions", "csrf_digest")
