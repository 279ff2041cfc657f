"""Lists of jobs: the text that a search reads, and on SQLite an index with all that filters and orders read

Revision ID: 0014
Revises: 0013
"""

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

JOBS = sa.table(
    "jobs",
    sa.column("id", sa.String),
    sa.column("owner", sa.String),
    sa.column("name", sa.String),
    sa.column("labels", sa.JSON),
    sa.column("search_text", sa.Text),
)
LISTED = [
    "id",
    "state",
    "owner",
    "visibility",
    "name",
    "trainer",
    "priority",
    "started_at",
    "finished_at",
    "search_text",
]
BATCH = 5000


def upgrade() -> None:
    connection = op.get_bind()
    limit_lock_waits(connection)
    op.add_column("jobs", sa.Column("search_text", sa.Text(), nullable=False, server_default=""))
    _fill(connection)
    if connection.dialect.name == "sqlite":  # PostgreSQL keeps large values outside of the rows
        op.create_index("ix_jobs_listed", "jobs", LISTED)


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.drop_index("ix_jobs_listed", "jobs", if_exists=True)
    op.drop_column("jobs", "search_text")


def _fill(connection: sa.Connection) -> None:
    columns = (JOBS.c.id, JOBS.c.owner, JOBS.c.name, JOBS.c.labels)
    write = sa.update(JOBS).where(JOBS.c.id == sa.bindparam("job")).values(search_text=sa.bindparam("text"))
    last = ""
    while rows := connection.execute(
        sa.select(*columns).where(JOBS.c.id > last).order_by(JOBS.c.id).limit(BATCH)
    ).all():
        found = [
            {"job": row.id, "text": "\x1f".join((row.id, row.owner, row.name, *row.labels.values())).casefold()}
            for row in rows
        ]
        connection.execute(write, found)
        last = rows[-1].id
