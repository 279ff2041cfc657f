"""Groups of waiting jobs: what a job asks for as a key, and why each group waits

Revision ID: 0005
Revises: 0004
"""

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

INDEXES = {
    "ix_jobs_waiting": (["state", "shape", "priority", "id"], "state = 'queued' AND not_before IS NULL"),
    "ix_jobs_held_back": (["state", "not_before"], "state = 'queued' AND not_before IS NOT NULL"),
    "ix_jobs_favoured": (["state", "reason_code"], "state = 'queued' AND reason_code = 'preempting'"),
}


def upgrade() -> None:
    """No row is written: workers give the waiting ones their shape, as they do where an older program queues a job."""
    limit_lock_waits(op.get_bind())
    op.add_column("jobs", sa.Column("shape", sa.String(32), nullable=True))
    for name, (columns, where) in INDEXES.items():
        op.create_index(name, "jobs", columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))
    op.create_table(
        "waiting_reasons",
        sa.Column("shape", sa.String(32), nullable=False),
        sa.Column("code", sa.String(40), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("shape", name=op.f("pk_waiting_reasons")),
    )


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.drop_table("waiting_reasons")
    for name in INDEXES:
        op.drop_index(name, "jobs")
    op.drop_column("jobs", "shape")
