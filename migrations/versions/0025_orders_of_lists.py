"""Each order of a list of jobs is that of an index

Revision ID: 0025
Revises: 0024
"""

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

ORDERS = {
    "ix_jobs_by_name": "name",
    "ix_jobs_by_owner": "owner",
    "ix_jobs_by_state": "state",
    "ix_jobs_by_priority": "priority DESC",
}
POSTGRESQL_ORDERS = {
    "ix_jobs_by_start": "coalesce(started_at, 0) DESC",
    "ix_jobs_by_end": "coalesce(finished_at, 0) DESC",
}
REPLACED = {"ix_jobs_owner_id": ["owner", "id"], "ix_jobs_state_priority_id": ["state", "priority", "id"]}


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    for name, first in _orders().items():
        op.create_index(name, "jobs", [sa.text(first), sa.text("id DESC")])
    for name in REPLACED:
        op.drop_index(name, "jobs")


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    for name, columns in REPLACED.items():
        op.create_index(name, "jobs", columns)
    for name in _orders():
        op.drop_index(name, "jobs")


def _orders() -> dict[str, str]:
    return ORDERS | (POSTGRESQL_ORDERS if op.get_bind().dialect.name == "postgresql" else {})
