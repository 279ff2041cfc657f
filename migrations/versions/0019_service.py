"""The service's id, which its folder of blobs has too. The first program that starts makes it

Revision ID: 0019
Revises: 0018
"""

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.create_table(
        "service",
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("blobs", sa.String(5000), nullable=True),
        sa.CheckConstraint("number = 1", name=op.f("ck_service_one_row")),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_service")),
    )


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.drop_table("service")
