"""What a fair queue remembers. What users used of late and how long their runs took is taken from the attempts

Revision ID: 0024
Revises: 0023
"""

from collections import defaultdict
import math
import time
from typing import Any

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

DAY_US = 86_400_000_000
LATE_US = 14 * DAY_US
"""What ended before counts by less than 1 in 16,000."""

USED = sa.text("""
SELECT jobs.owner, allocations.kind, attempts.started_at, attempts.ended_at, count(*) AS devices
FROM attempts JOIN jobs ON jobs.id = attempts.job_id JOIN allocations ON allocations.attempt_id = attempts.id
WHERE attempts.ended_at > :since
GROUP BY attempts.id, jobs.owner, allocations.kind, attempts.started_at, attempts.ended_at
""")
LENGTHS = sa.text("""
INSERT INTO run_lengths (owner, trainer, last_us, before_us)
SELECT owner, trainer, max(CASE WHEN place = 1 THEN ran_us END), max(CASE WHEN place = 2 THEN ran_us END)
FROM (
    SELECT owner, trainer, ran_us, row_number() OVER (PARTITION BY owner, trainer ORDER BY finished_at DESC) AS place
    FROM jobs WHERE state = 'succeeded' AND finished_at > :since
) AS ended
WHERE place <= 2 GROUP BY owner, trainer
""")


def upgrade() -> None:
    connection = op.get_bind()
    limit_lock_waits(connection)
    op.add_column("attempts", sa.Column("guest", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.add_column("attempts", sa.Column("stopped_for", sa.String(40), nullable=True))
    stopped = sa.text("stopped_for IS NOT NULL")
    op.create_index("ix_attempts_stopped", "attempts", ["ended_at"], sqlite_where=stopped, postgresql_where=stopped)
    for name in ("waited_us", "waited_first_us"):
        op.add_column("jobs", sa.Column(name, sa.BigInteger(), server_default="0", nullable=False))
    op.execute(sa.text("UPDATE jobs SET lined_at = reason_since WHERE state = 'queued'"))
    _index_favoured("reason_code IN ('preempting', 'reserved')")
    op.add_column("allocations", sa.Column("kind", sa.String(4), server_default="cpu", nullable=False))
    op.execute(sa.text("UPDATE allocations SET kind = 'cuda' WHERE device NOT LIKE 'cpu-%'"))
    op.create_table(
        "reservations",
        sa.Column("worker_id", sa.String(40), sa.ForeignKey("workers.id", name="fk_reservations_worker_id")),
        sa.Column("kind", sa.String(4), nullable=False),
        sa.Column("job_id", sa.String(40), sa.ForeignKey("jobs.id", name="fk_reservations_job_id"), nullable=True),
        sa.Column("due", sa.BigInteger(), nullable=False),
        sa.Column("bound", sa.BigInteger(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("worker_id", "kind", name="pk_reservations"),
        sa.UniqueConstraint("job_id", name="uq_reservations_job_id"),
    )
    usage = op.create_table(
        "usage",
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("kind", sa.String(4), nullable=False),
        sa.Column("used_s", sa.Float(53), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("owner", "kind", name="pk_usage"),
    )
    op.create_table(
        "run_lengths",
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("trainer", sa.String(40), nullable=False),
        sa.Column("last_us", sa.BigInteger(), nullable=False),
        sa.Column("before_us", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("owner", "trainer", name="pk_run_lengths"),
    )
    now = time.time_ns() // 1000
    used: dict[tuple[str, str], float] = defaultdict(float)
    for row in connection.execute(USED, {"since": now - LATE_US}):
        used[row.owner, row.kind] += row.devices * _used_s(row, now)
    rows = [{"owner": owner, "kind": kind, "used_s": used_s, "at": now} for (owner, kind), used_s in used.items()]
    op.bulk_insert(usage, rows)
    connection.execute(LENGTHS, {"since": now - LATE_US})


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    for table in ("run_lengths", "usage", "reservations"):
        op.drop_table(table)
    op.drop_column("allocations", "kind")
    _index_favoured("reason_code = 'preempting'")
    for name in ("waited_first_us", "waited_us"):
        op.drop_column("jobs", name)
    op.drop_index("ix_attempts_stopped", "attempts")
    op.drop_column("attempts", "stopped_for")
    op.drop_column("attempts", "guest")


def _index_favoured(where: str) -> None:
    condition = sa.text(f"state = 'queued' AND {where}")
    op.drop_index("ix_jobs_favoured", "jobs")
    op.create_index(
        "ix_jobs_favoured", "jobs", ["state", "reason_code"], sqlite_where=condition, postgresql_where=condition
    )


def _used_s(row: Any, now: int) -> float:
    """Returns the seconds of the attempt, each halved for every day that has passed since."""
    rate = math.log(2) / DAY_US
    held = -math.expm1(-rate * max(0, row.ended_at - row.started_at)) / rate
    return held * math.exp(-rate * max(0, now - row.ended_at)) / 1_000_000
