"""Checkpoints have the time of their saving, which orders them, and those that are not whole are marked

Revision ID: 0050
Revises: 0049

Of the checkpoints that are there, a captured file has the time that its name says, and others the time of their
listing; those that were listed at once keep the order of their steps. The copy of a captured one, from which a retried
job started, is captured, too.
"""

from itertools import islice

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits

revision = "0050"
down_revision = "0049"
branch_labels = None
depends_on = None

KEPT = sa.text("removed_at IS NULL")
LISTED = """
    UPDATE checkpoints SET saved_at = checkpoints.created_at * 1000 + coalesce((
        SELECT count(*) FROM checkpoints AS other
        WHERE other.job_id = checkpoints.job_id AND other.attempt = checkpoints.attempt
            AND other.created_at = checkpoints.created_at
            AND (other.step < checkpoints.step OR other.step = checkpoints.step AND other.id < checkpoints.id)
    ), 0)
"""
FROM_RETRIES = (
    "UPDATE checkpoints SET source = 'captured' WHERE attempt = 0 AND source IS NULL AND name LIKE 'captured-%-%-%'"
)
PER_STATEMENT = 1000


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.add_column("checkpoints", sa.Column("saved_at", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("checkpoints", sa.Column("damaged", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.execute(LISTED)
    op.execute(FROM_RETRIES)
    _take_times_of_files()
    _index("saved_at")
    op.add_column("attempts", sa.Column("hides_after", sa.BigInteger(), nullable=True))
    op.execute("UPDATE attempts SET hides_after = start_step")


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.drop_column("attempts", "hides_after")
    _index("step")
    op.drop_column("checkpoints", "damaged")
    op.drop_column("checkpoints", "saved_at")


def _take_times_of_files() -> None:
    """Gives captured files the modification time that their names have: `captured-PATH-TIME-SIZE`, in hexadecimal."""
    connection = op.get_bind()
    found = connection.execute(sa.text("SELECT id, name FROM checkpoints WHERE source = 'captured'"))
    times = ({"id": row.id, "time": int(row.name.split("-")[2], 16)} for row in found.all())
    change = sa.text("UPDATE checkpoints SET saved_at = :time WHERE id = :id")
    while some := list(islice(times, PER_STATEMENT)):
        connection.execute(change, some)


def _index(column: str) -> None:
    op.drop_index("ix_checkpoints_kept", "checkpoints")
    op.create_index(
        "ix_checkpoints_kept",
        "checkpoints",
        ["job_id", "attempt", column],
        sqlite_where=KEPT,
        postgresql_where=KEPT,
    )
