"""The parts of a bundle's tar are beside it, so that a changed file does not send the rest again, and its owner's name

Revision ID: 0056
Revises: 0055

Bundles that were there before have none: what is changed in them is sent whole once more.
"""

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits

revision = "0056"
down_revision = "0055"
branch_labels = None
depends_on = None


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.add_column("bundles", sa.Column("parts", sa.LargeBinary(), nullable=True))
    op.add_column("bundles", sa.Column("name", sa.String(100), nullable=True))
    op.create_index("ix_bundles_owner_name", "bundles", ["owner", "name"], unique=True)


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.drop_index("ix_bundles_owner_name", "bundles")
    op.drop_column("bundles", "name")
    op.drop_column("bundles", "parts")
