"""Joined points: chunks of several batches, and how far each job's points are joined

Revision ID: 0013
Revises: 0012
"""

import struct

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

POINT_SIZE = 24
PLACE = struct.Struct("<qq")
PAGE = 100


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.add_column("point_chunks", sa.Column("last", sa.BigInteger(), nullable=True))
    op.add_column("point_chunks", sa.Column("places", sa.LargeBinary(), nullable=True))
    op.create_index(
        "ix_point_chunks_joined",
        "point_chunks",
        ["job_id", "last"],
        sqlite_where=sa.text("last IS NOT NULL"),
        postgresql_where=sa.text("last IS NOT NULL"),
    )
    op.add_column("jobs", sa.Column("points_joined_to", sa.BigInteger(), nullable=False, server_default="0"))
    op.create_index(
        "ix_jobs_points_joined_to_finished_at",
        "jobs",
        ["points_joined_to", "finished_at"],
        sqlite_where=sa.text("finished_at IS NOT NULL"),
        postgresql_where=sa.text("finished_at IS NOT NULL"),
    )


def downgrade() -> None:
    """Splits the joined chunks, because an older program would take all their positions for neighbouring ones."""
    limit_lock_waits(op.get_bind())
    while _split_some():
        pass
    op.drop_index("ix_jobs_points_joined_to_finished_at", "jobs")
    op.drop_column("jobs", "points_joined_to")
    op.drop_index("ix_point_chunks_joined", "point_chunks")
    op.drop_column("point_chunks", "places")
    op.drop_column("point_chunks", "last")


def _split_some() -> bool:
    """Returns whether more chunks may be left."""
    connection = op.get_bind()
    query = "SELECT series_id, first, job_id, attempt, data, places FROM point_chunks WHERE last IS NOT NULL LIMIT :n"
    chunks = connection.execute(sa.text(query), {"n": PAGE}).all()
    for chunk in chunks:
        batches: list[dict[str, object]] = []
        at = 0
        for first, count in PLACE.iter_unpack(bytes(chunk.places)):
            data = bytes(chunk.data[at : at + count * POINT_SIZE])
            batches.append({"first": first, "count": count, "data": data})
            at += count * POINT_SIZE
        place = {"series": chunk.series_id, "job": chunk.job_id, "attempt": chunk.attempt}
        connection.execute(
            sa.text("DELETE FROM point_chunks WHERE series_id = :series AND first = :first"),
            {"series": chunk.series_id, "first": chunk.first},
        )
        connection.execute(
            sa.text(
                "INSERT INTO point_chunks (series_id, first, job_id, attempt, count, data)"
                " VALUES (:series, :first, :job, :attempt, :count, :data)"
            ),
            [{**place, **batch} for batch in batches],
        )
    return len(chunks) == PAGE
