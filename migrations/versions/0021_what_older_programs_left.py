"""What older programs left: answers beside idempotency keys, which nothing reads, and jobs without a shape

Revision ID: 0021
Revises: 0020
"""

import hashlib
import json

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from migrations.turns import limit_lock_waits

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

DOCUMENT = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
JOBS = sa.table(
    "jobs", sa.column("id", sa.String), sa.column("owner", sa.String), sa.column("spec", DOCUMENT), sa.column("shape")
)
BATCH = 5000


def upgrade() -> None:
    connection = op.get_bind()
    limit_lock_waits(connection)
    op.drop_column("idempotency_keys", "answer")
    shapeless = sa.select(JOBS.c.id, JOBS.c.owner, JOBS.c.spec["resources"]).where(JOBS.c.shape.is_(None)).limit(BATCH)
    write = sa.update(JOBS).where(JOBS.c.id == sa.bindparam("job")).values(shape=sa.bindparam("found"))
    while rows := connection.execute(shapeless).all():
        connection.execute(write, [{"job": row[0], "found": _shape_of(row[1], row[2])} for row in rows])


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.add_column("idempotency_keys", sa.Column("answer", DOCUMENT, nullable=False, server_default="{}"))


def _shape_of(owner: str, resources: object) -> str:
    written = json.dumps([owner, resources], sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(written.encode(), digest_size=16).hexdigest()
