"""The packages that jobs had

Revision ID: 0047
Revises: 0046

Jobs that ran before have none.
"""

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits
from store.db.database import Document

revision = "0047"
down_revision = "0046"
branch_labels = None
depends_on = None


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.create_table(
        "job_packages",
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("document", Document, nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_job_packages_job_id"),
        sa.PrimaryKeyConstraint("job_id", name="pk_job_packages"),
    )


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.drop_table("job_packages")
