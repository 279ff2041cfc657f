"""One sequence of all that a job stores, points in chunks, idempotency keys and deletions

Revision ID: 0002
Revises: 0001
"""

from collections.abc import Iterator
from itertools import groupby, islice
import math
import struct

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

DOCUMENT = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
BIG_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
POINT = struct.Struct("<qdq")
CHUNK = 4096


def upgrade() -> None:
    op.execute("ALTER TABLE jobs RENAME COLUMN events TO position")
    if op.get_bind().dialect.name == "postgresql":
        op.alter_column("jobs", "position", type_=sa.BigInteger())
        op.alter_column("job_events", "seq", type_=sa.BigInteger())
    op.add_column("attempts", sa.Column("relay_lag_us", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("series", sa.Column("count", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("log_chunks", sa.Column("position", sa.BigInteger(), nullable=False, server_default="0"))
    op.create_table(
        "point_chunks",
        sa.Column("series_id", BIG_KEY, autoincrement=False, nullable=False),
        sa.Column("first", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["series_id"], ["series.id"], name=op.f("fk_point_chunks_series_id")),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_point_chunks_job_id")),
        sa.PrimaryKeyConstraint("series_id", "first", name=op.f("pk_point_chunks")),
        sa.UniqueConstraint("job_id", "first", name=op.f("uq_point_chunks_job_id_first")),
        sqlite_with_rowid=False,
    )
    _pack_points()
    op.drop_table("points")
    op.execute("UPDATE log_chunks SET position = first + (SELECT position FROM jobs WHERE jobs.id = log_chunks.job_id)")
    op.execute("UPDATE jobs SET position = position + log_lines")
    op.create_index("uq_log_chunks_job_id_position", "log_chunks", ["job_id", "position"], unique=True)
    op.create_table(
        "idempotency_keys",
        sa.Column("owner", sa.String(length=100), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("location", sa.String(length=200), nullable=False),
        sa.Column("answer", DOCUMENT, nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_idempotency_keys_job_id")),
        sa.PrimaryKeyConstraint("owner", "key", name=op.f("pk_idempotency_keys")),
    )
    op.create_index("ix_idempotency_keys_created_at", "idempotency_keys", ["created_at"])
    op.create_index("ix_idempotency_keys_job_id", "idempotency_keys", ["job_id"])
    op.create_table(
        "deleted_jobs",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("deleted_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_deleted_jobs")),
    )
    op.create_table(
        "garbage",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_garbage")),
    )


def downgrade() -> None:
    for table in ("garbage", "deleted_jobs", "idempotency_keys"):
        op.drop_table(table)
    op.drop_index("uq_log_chunks_job_id_position", "log_chunks")
    op.create_table(
        "points",
        sa.Column("series_id", BIG_KEY, autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("step", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("value", sa.Float(53), nullable=True),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["series_id"], ["series.id"], name=op.f("fk_points_series_id")),
        sa.PrimaryKeyConstraint("series_id", "attempt", "step", name=op.f("pk_points")),
        sqlite_with_rowid=False,
    )
    _unpack_points()
    op.drop_table("point_chunks")
    op.drop_column("log_chunks", "position")
    op.drop_column("series", "count")
    op.drop_column("attempts", "relay_lag_us")
    op.execute("ALTER TABLE jobs RENAME COLUMN position TO events")


def _pack_points() -> None:
    """Moves the rows of `points` into chunks, behind the events of their job."""
    connection = op.get_bind()
    series = connection.execute(sa.text("SELECT id, job_id FROM series ORDER BY job_id, id")).all()
    for job_id, of_job in groupby(series, key=lambda row: row.job_id):
        named = {"job": job_id}
        position = connection.execute(sa.text("SELECT position FROM jobs WHERE id = :job"), named).scalar_one()
        for row in of_job:
            rows = connection.execute(
                sa.text("SELECT attempt, step, value, time FROM points WHERE series_id = :id ORDER BY attempt, step"),
                {"id": row.id},
            )
            count = 0
            for attempt, points in groupby(rows, key=lambda point: point.attempt):
                for packed in _packed((point.step, point.value, point.time) for point in points):
                    size = len(packed) // POINT.size
                    connection.execute(
                        sa.text(
                            "INSERT INTO point_chunks (series_id, first, job_id, attempt, count, data)"
                            " VALUES (:id, :first, :job, :attempt, :count, :data)"
                        ),
                        {
                            **named,
                            "id": row.id,
                            "first": position + 1,
                            "attempt": attempt,
                            "count": size,
                            "data": packed,
                        },
                    )
                    position += size
                    count += size
            connection.execute(sa.text("UPDATE series SET count = :n WHERE id = :id"), {"n": count, "id": row.id})
        connection.execute(sa.text("UPDATE jobs SET position = :n WHERE id = :job"), {**named, "n": position})


def _packed(points: Iterator[tuple[int, float | None, int]]) -> Iterator[bytes]:
    while chunk := list(islice(points, CHUNK)):
        yield b"".join(POINT.pack(step, math.nan if value is None else value, time) for step, value, time in chunk)


def _unpack_points() -> None:
    connection = op.get_bind()
    chunks = connection.execute(sa.text("SELECT series_id, attempt, data FROM point_chunks ORDER BY series_id, first"))
    for (series_id, attempt), group in groupby(chunks.all(), key=lambda chunk: (chunk.series_id, chunk.attempt)):
        newest = {step: (value, time) for chunk in group for step, value, time in POINT.iter_unpack(chunk.data)}
        connection.execute(
            sa.text("INSERT INTO points (series_id, attempt, step, value, time) VALUES (:id, :attempt, :step, :v, :t)"),
            [
                {
                    "id": series_id,
                    "attempt": attempt,
                    "step": step,
                    "v": None if math.isnan(value) else value,
                    "t": time,
                }
                for step, (value, time) in newest.items()
            ],
        )
