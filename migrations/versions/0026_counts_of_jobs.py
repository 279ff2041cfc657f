"""How many jobs of each owner are in each state is kept by the database itself

Revision ID: 0026
Revises: 0025
"""

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

ADD = "INSERT INTO job_counts (owner, visibility, state, jobs)"
SUMS = "SELECT owner, visibility, state, {} FROM {} GROUP BY owner, visibility, state"
OLD, NEW = "(OLD.owner, OLD.visibility, OLD.state, -1)", "(NEW.owner, NEW.visibility, NEW.state, 1)"
SQLITE = {
    "insert": f"AFTER INSERT ON jobs BEGIN {ADD} VALUES {NEW}; END",  # noqa: S608 - no values are put into it
    "update": f"AFTER UPDATE OF owner, visibility, state ON jobs BEGIN {ADD} VALUES {OLD}, {NEW}; END",
    "delete": f"AFTER DELETE ON jobs BEGIN {ADD} VALUES {OLD}; END",
}
CHANGED = "(OLD.owner, OLD.visibility, OLD.state) IS DISTINCT FROM (NEW.owner, NEW.visibility, NEW.state)"
POSTGRESQL = {
    "insert": (
        f"{ADD} {SUMS.format('count(*)', 'changed')}",
        "AFTER INSERT ON jobs REFERENCING NEW TABLE AS changed FOR EACH STATEMENT",
    ),
    "update": (f"{ADD} VALUES {OLD}, {NEW}", f"AFTER UPDATE ON jobs FOR EACH ROW WHEN ({CHANGED})"),
    "delete": (
        f"{ADD} {SUMS.format('-count(*)', 'changed')}",
        "AFTER DELETE ON jobs REFERENCING OLD TABLE AS changed FOR EACH STATEMENT",
    ),
}
"""The statement of each function, and when it is called."""


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.create_table(
        "job_counts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("visibility", sa.String(8), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("jobs", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_job_counts"),
    )
    # Before the jobs are counted: from here on, nobody else changes one.
    if op.get_bind().dialect.name == "postgresql":
        for name, (statement, when) in POSTGRESQL.items():
            op.execute(
                f"CREATE FUNCTION count_jobs_{name}() RETURNS trigger LANGUAGE plpgsql"
                f" AS $$ BEGIN {statement}; RETURN NULL; END $$"
            )
            op.execute(f"CREATE TRIGGER count_jobs_{name} {when} EXECUTE FUNCTION count_jobs_{name}()")
    else:
        for name, body in SQLITE.items():
            op.execute(f"CREATE TRIGGER count_jobs_{name} {body}")
    op.execute(f"{ADD} {SUMS.format('count(*)', 'jobs')}")


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    postgresql = op.get_bind().dialect.name == "postgresql"
    for name in SQLITE:
        op.execute(f"DROP TRIGGER count_jobs_{name}{' ON jobs' if postgresql else ''}")
        if postgresql:
            op.execute(f"DROP FUNCTION count_jobs_{name}()")
    op.drop_table("job_counts")
