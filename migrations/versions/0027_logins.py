"""Login codes and failed logins are rows, which all processes of the API share

Revision ID: 0027
Revises: 0026
"""

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.create_table(
        "login_codes",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("credential", sa.String(64), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_login_codes"),
    )
    op.create_index("ix_login_codes_expires_at", "login_codes", ["expires_at"])
    op.create_table(
        "failed_logins",
        sa.Column("address", sa.String(64), nullable=False),
        sa.Column("forgotten_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("address", name="pk_failed_logins"),
    )
    op.create_index("ix_failed_logins_forgotten_at", "failed_logins", ["forgotten_at"])


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.drop_table("failed_logins")
    op.drop_table("login_codes")
