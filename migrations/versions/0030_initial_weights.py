"""The weights that jobs start from, whose files are kept until the jobs end

Revision ID: 0030
Revises: 0029
"""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from migrations.turns import limit_lock_waits

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

DOCUMENT = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.create_table(
        "initial_weights",
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("source_job", sa.String(40), nullable=True),
        sa.Column("source_checkpoint", sa.String(40), nullable=True),
        sa.Column("model_owner", sa.String(100), nullable=True),
        sa.Column("model_name", sa.String(100), nullable=True),
        sa.Column("model_version", sa.Integer(), nullable=True),
        sa.Column("trainer", sa.String(40), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=True),
        sa.Column("files", DOCUMENT, nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_initial_weights_job_id"),
        sa.PrimaryKeyConstraint("job_id", name="pk_initial_weights"),
    )
    op.create_index("ix_initial_weights_source_job", "initial_weights", ["source_job"])


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.drop_table("initial_weights")
