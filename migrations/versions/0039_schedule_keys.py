"""The idempotency keys of schedules

Revision ID: 0039
Revises: 0038
"""

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.add_column("schedules", sa.Column("idempotency_key", sa.String(255), nullable=True))
    op.add_column("schedules", sa.Column("fingerprint", sa.String(64), nullable=True))
    op.create_index("ix_schedules_key", "schedules", ["owner", "idempotency_key"], unique=True)


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.drop_index("ix_schedules_key", "schedules")
    op.drop_column("schedules", "fingerprint")
    op.drop_column("schedules", "idempotency_key")
