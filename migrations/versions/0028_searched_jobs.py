"""PostgreSQL finds jobs by three characters in a row of what a search reads

Revision ID: 0028
Revises: 0027
"""

from alembic import op

from migrations.turns import limit_lock_waits

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

# pg_trgm has such an index, but is not installed everywhere. The cost keeps PostgreSQL from calling it for each row.
FUNCTION = (
    "CREATE FUNCTION search_grams(text) RETURNS text[] LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE COST 1000 AS $$"
    " SELECT ARRAY(SELECT substr($1, n, 3) FROM generate_series(1, length($1) - 2) AS n) $$"
)
# A search reads the rows that wait for their place in the index one by one: few may wait (in KiB).
INDEX = (
    "CREATE INDEX ix_jobs_searched ON jobs USING gin (search_grams(search_text))"
    " WITH (fastupdate = on, gin_pending_list_limit = 256)"
)


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        limit_lock_waits(op.get_bind())
        op.execute(FUNCTION)
        op.execute(INDEX)


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        limit_lock_waits(op.get_bind())
        op.drop_index("ix_jobs_searched", "jobs")
        op.execute("DROP FUNCTION search_grams(text)")
