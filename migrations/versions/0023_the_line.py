"""What the line of queued jobs is read by: the device that a job asks for, when it joined, and shapes that say more

Revision ID: 0023
Revises: 0022
"""

from bisect import bisect_left
import hashlib
import json
import re
from typing import Any

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from migrations.turns import limit_lock_waits

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

DOCUMENT = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
JOBS = sa.table(
    "jobs",
    *(sa.column(name, sa.String) for name in ("id", "owner", "state", "shape", "device_request")),
    sa.column("ran_us", sa.BigInteger),
    sa.column("spec", DOCUMENT),
)
DEVICES = "UPDATE jobs SET device_request = coalesce(spec -> 'resources' ->> 'device', 'auto')"
QUEUED = "state = 'queued'"
BATCH = 5000
SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
DAY_US = 86_400_000_000
BOUNDS_US = tuple(round(DAY_US * 2 ** (step / 4)) for step in range(-42, 21))
LOOK_US = 1_800_000_000


def upgrade() -> None:
    connection = op.get_bind()
    limit_lock_waits(connection)
    op.add_column("jobs", sa.Column("device_request", sa.String(8), nullable=False, server_default="auto"))
    op.add_column("jobs", sa.Column("lined_at", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("service", sa.Column("line_swept_at", sa.BigInteger(), nullable=False, server_default="0"))
    op.execute(sa.text(DEVICES))
    _write_shapes(connection)
    op.drop_index("ix_jobs_waiting", "jobs")
    _index("ix_jobs_waiting", "shape", "priority", "created_at", "id", where=f"{QUEUED} AND not_before IS NULL")
    _index("ix_jobs_line", "priority", "owner", "device_request", "created_at", "id", where=QUEUED)
    op.create_index("ix_jobs_lined_at", "jobs", ["lined_at", "id"])
    op.create_index("ix_deleted_jobs_deleted_at", "deleted_jobs", ["deleted_at", "job_id"])


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.drop_index("ix_deleted_jobs_deleted_at", "deleted_jobs")
    for name in ("ix_jobs_lined_at", "ix_jobs_line", "ix_jobs_waiting"):
        op.drop_index(name, "jobs")
    _index("ix_jobs_waiting", "shape", "priority", "id", where=f"{QUEUED} AND not_before IS NULL")
    op.drop_column("service", "line_swept_at")
    for name in ("lined_at", "device_request"):
        op.drop_column("jobs", name)


def _index(name: str, *columns: str, where: str) -> None:
    condition = sa.text(where)
    op.create_index(name, "jobs", ["state", *columns], sqlite_where=condition, postgresql_where=condition)


def _write_shapes(connection: sa.Connection) -> None:
    """Gives queued jobs their shapes; others get theirs when they are queued again."""
    some = (
        sa.select(JOBS.c.id, JOBS.c.owner, JOBS.c.spec, JOBS.c.ran_us)
        .where(JOBS.c.state == "queued", JOBS.c.id > sa.bindparam("above"))
        .order_by(JOBS.c.id)
        .limit(BATCH)
    )
    write = sa.update(JOBS).where(JOBS.c.id == sa.bindparam("job")).values(shape=sa.bindparam("found"))
    last = ""
    while rows := connection.execute(some, {"above": last}).all():
        connection.execute(
            write, [{"job": row.id, "found": _shape_of(row.owner, row.spec, row.ran_us)} for row in rows]
        )
        last = rows[-1].id


def _shape_of(owner: str, spec: dict[str, Any], ran_us: int) -> str:
    left = max(0, _microseconds(spec.get("time_limit", "24h")) - ran_us)
    parts = [1, owner, spec["resources"], spec.get("preemptible", False)]
    parts += [bisect_left(BOUNDS_US, left), ran_us >= LOOK_US]
    written = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(written.encode(), digest_size=16).hexdigest()


def _microseconds(written: str) -> int:
    match = re.fullmatch(r"([0-9]{1,9})([smhd])", written)
    return DAY_US if match is None else int(match[1]) * SECONDS[match[2]] * 1_000_000
