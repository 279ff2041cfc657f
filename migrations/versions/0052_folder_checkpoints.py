"""Checkpoints of many files: what a download sends, and how long the list of files is, are beside that list

Revision ID: 0052
Revises: 0051

Checkpoints and versions that were there before have neither: both are made of their files, which are few.
"""

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits
from store.db.database import Document

revision = "0052"
down_revision = "0051"
branch_labels = None
depends_on = None

_TABLES = ("checkpoints", "model_versions")


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    for table in _TABLES:
        op.add_column(table, sa.Column("files_bytes", sa.Integer(), nullable=True))
        op.add_column(table, sa.Column("sent", Document, nullable=True))


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    for table in _TABLES:
        op.drop_column(table, "sent")
        op.drop_column(table, "files_bytes")
