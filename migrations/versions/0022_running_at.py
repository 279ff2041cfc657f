"""When an attempt became running. Those of before have the time of the event that says so

Revision ID: 0022
Revises: 0021
"""

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

FILL = """
UPDATE attempts SET running_at = (
    SELECT min(time) FROM job_events
    WHERE job_id = attempts.job_id AND attempt = attempts.number AND type = 'state' AND data ->> 'to' = 'running'
)
"""


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.add_column("attempts", sa.Column("running_at", sa.BigInteger(), nullable=True))
    op.execute(sa.text(FILL))


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.drop_column("attempts", "running_at")
