"""Reaches into running attempts, and sessions of browsers that may make them

Revision ID: 0069
Revises: 0068
"""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from migrations.turns import limit_lock_waits

revision = "0069"
down_revision = "0068"
branch_labels = None
depends_on = None

DOCUMENT = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.create_table(
        "reaches",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("attempt_id", KEY, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("user", sa.String(100), nullable=False),
        sa.Column("role", sa.String(20), nullable=False),
        sa.Column("token_id", sa.String(40), nullable=True),
        sa.Column("session", sa.String(64), nullable=True),
        sa.Column("order", DOCUMENT, nullable=False),
        sa.Column("meeting", sa.Integer(), nullable=False),
        sa.Column("secret", sa.String(64), nullable=True),
        sa.Column("first", sa.String(8), nullable=True),
        sa.Column("place", sa.String(200), nullable=True),
        sa.Column("has_started", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.id"], name="fk_reaches_attempt_id"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_reaches_job_id"),
        sa.PrimaryKeyConstraint("id", name="pk_reaches"),
    )
    op.create_index("ix_reaches_attempt_id", "reaches", ["attempt_id"])
    op.create_index("ix_reaches_job_id", "reaches", ["job_id"])
    op.create_index("ix_reaches_user", "reaches", ["user"])
    op.add_column("attempt_uses", sa.Column("input_at", sa.BigInteger(), nullable=True))
    op.add_column("browser_sessions", sa.Column("exec", sa.Boolean(), nullable=False, server_default=sa.false()))


def downgrade() -> None:
    op.drop_column("browser_sessions", "exec")
    op.drop_column("attempt_uses", "input_at")
    op.drop_table("reaches")
