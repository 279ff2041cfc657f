"""Host names by which browsers come to terminals and ports of running attempts

Revision ID: 0070
Revises: 0069
"""

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits

revision = "0070"
down_revision = "0069"
branch_labels = None
depends_on = None


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.create_table(
        "origins",
        sa.Column("name", sa.String(40), nullable=False),
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("attempt_id", sa.BigInteger(), nullable=False),
        sa.Column("user", sa.String(100), nullable=False),
        sa.Column("role", sa.String(20), nullable=False),
        sa.Column("token_id", sa.String(40), nullable=True),
        sa.Column("session", sa.String(64), nullable=False),
        sa.Column("port", sa.Integer(), nullable=True),
        sa.Column("reach_id", sa.String(40), nullable=True),
        sa.Column("ticket", sa.String(64), nullable=True),
        sa.Column("ticket_until", sa.BigInteger(), nullable=False),
        sa.Column("cookie", sa.String(64), nullable=True),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_origins"),
    )
    op.create_index("ix_origins_user", "origins", ["user"])


def downgrade() -> None:
    op.drop_table("origins")
