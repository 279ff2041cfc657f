"""Notes, stars and archived jobs, which are counted apart

Revision ID: 0037
Revises: 0036
"""

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None

LISTED = ("id", "state", "owner", "visibility", "name", "trainer", "priority", "started_at", "finished_at")
COUNTED = ("owner", "visibility", "state")
ARCHIVED = sa.text("archived_at IS NOT NULL")


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.add_column("jobs", sa.Column("archived_at", sa.BigInteger(), nullable=True))
    op.add_column("jobs", sa.Column("notes", sa.Text(), nullable=True))
    op.create_index("ix_jobs_archived", "jobs", ["id"], sqlite_where=ARCHIVED, postgresql_where=ARCHIVED)
    op.create_table(
        "stars",
        sa.Column("who", sa.String(100), nullable=False),
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.PrimaryKeyConstraint("who", "job_id", name="pk_stars"),
    )
    op.create_index("ix_stars_job_id", "stars", ["job_id"])
    _drop_triggers()
    op.add_column("job_counts", sa.Column("archived", sa.Boolean(), server_default=sa.false(), nullable=False))
    _create_triggers({**{name: name for name in COUNTED}, "archived": "archived_at IS NOT NULL"})
    _list_by(*LISTED, "archived_at", "search_text")


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    _list_by(*LISTED, "search_text")
    _drop_triggers()
    op.drop_column("job_counts", "archived")
    _create_triggers({name: name for name in COUNTED})
    op.drop_table("stars")
    op.drop_index("ix_jobs_archived", "jobs")
    op.drop_column("jobs", "notes")
    op.drop_column("jobs", "archived_at")


def _list_by(*columns: str) -> None:
    """Makes the index of lists anew, which SQLite alone has."""
    if op.get_bind().dialect.name == "sqlite":
        op.drop_index("ix_jobs_listed", "jobs")
        op.create_index("ix_jobs_listed", "jobs", [*columns])


def _drop_triggers() -> None:
    postgresql = op.get_bind().dialect.name == "postgresql"
    for name in ("insert", "update", "delete"):
        op.execute(f"DROP TRIGGER count_jobs_{name}{' ON jobs' if postgresql else ''}")
        if postgresql:
            op.execute(f"DROP FUNCTION count_jobs_{name}()")


def _create_triggers(counted: dict[str, str]) -> None:
    """Makes the triggers that add to the counts. `counted`: what each column of the counts is of a job."""
    add = f"INSERT INTO job_counts ({', '.join(counted)}, jobs)"
    if op.get_bind().dialect.name == "postgresql":
        _create_on_postgresql(counted, add)
        return
    columns = ", ".join(each.split()[0] for each in counted.values())
    old, new = _row("OLD", counted, -1), _row("NEW", counted, 1)
    for name, when, rows in (
        ("insert", "INSERT", new),
        ("update", f"UPDATE OF {columns}", f"{old}, {new}"),
        ("delete", "DELETE", old),
    ):
        op.execute(f"CREATE TRIGGER count_jobs_{name} AFTER {when} ON jobs BEGIN {add} VALUES {rows}; END")


def _create_on_postgresql(counted: dict[str, str], add: str) -> None:
    values = ", ".join(counted.values())
    old, new = _row("OLD", counted, -1), _row("NEW", counted, 1)
    changed = " OR ".join(f"({_of('OLD', each)}) IS DISTINCT FROM ({_of('NEW', each)})" for each in counted.values())
    some = f"{add} SELECT {values}, {{}} FROM changed GROUP BY {values}"  # noqa: S608 - no values of anybody are in it
    for name, statement, when in (
        ("insert", some.format("count(*)"), "INSERT ON jobs REFERENCING NEW TABLE AS changed FOR EACH STATEMENT"),
        ("update", f"{add} VALUES {old}, {new}", f"UPDATE ON jobs FOR EACH ROW WHEN ({changed})"),
        ("delete", some.format("-count(*)"), "DELETE ON jobs REFERENCING OLD TABLE AS changed FOR EACH STATEMENT"),
    ):
        op.execute(
            f"CREATE FUNCTION count_jobs_{name}() RETURNS trigger LANGUAGE plpgsql"
            f" AS $$ BEGIN {statement}; RETURN NULL; END $$"
        )
        op.execute(f"CREATE TRIGGER count_jobs_{name} AFTER {when} EXECUTE FUNCTION count_jobs_{name}()")


def _row(of: str, counted: dict[str, str], jobs: int) -> str:
    return f"({', '.join(_of(of, each) for each in counted.values())}, {jobs})"


def _of(row: str, value: str) -> str:
    return f"{row}.{value}"
