"""For which other jobs jobs wait. Until those have ended, they are not in the line

Revision ID: 0033
Revises: 0032
"""

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

IN_LINE = "(not_before IS NULL OR not_before < 4611686018427387904)"


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.create_table(
        "dependencies",
        sa.Column("job_id", sa.String(40), sa.ForeignKey("jobs.id", name="fk_dependencies_job_id"), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("awaited", sa.String(40), nullable=False),
        sa.Column("on", sa.String(16), nullable=False),
        sa.Column("ended", sa.String(16), nullable=True),
        sa.PrimaryKeyConstraint("job_id", "number", name="pk_dependencies"),
    )
    op.create_index("ix_dependencies_awaited", "dependencies", ["awaited"])
    _index_line(f"state = 'queued' AND {IN_LINE}")


def downgrade() -> None:
    # What waits stays held back: its spec says nothing to a program that knows no `after`.
    limit_lock_waits(op.get_bind())
    _index_line("state = 'queued'")
    op.drop_table("dependencies")


def _index_line(where: str) -> None:
    condition = sa.text(where)
    columns = ["state", "priority", "owner", "device_request", "created_at", "id"]
    op.drop_index("ix_jobs_line", "jobs")
    op.create_index("ix_jobs_line", "jobs", columns, sqlite_where=condition, postgresql_where=condition)
