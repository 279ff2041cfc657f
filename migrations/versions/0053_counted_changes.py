"""The bytes that an owner has stored count what changes leave: events that somebody asked for, and the audit's entries

Revision ID: 0053
Revises: 0052
"""

from dataclasses import dataclass

from alembic import op

from migrations.turns import limit_lock_waits

revision = "0053"
down_revision = "0052"
branch_labels = None
depends_on = None

ROW_BYTES = 256
"""What a small row and its keys take beside its text, in round numbers."""


@dataclass(frozen=True)
class Counted:
    """What rows of a table have written: the expressions of their owner and of the text that is counted."""

    owner: str
    text: str
    counts: str
    """Which rows count."""


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    for table, counted in _tables().items():
        for event, row, changed, sign in (("INSERT", "NEW", "NEW", ""), ("DELETE", "OLD", "OLD", "-")):
            name = f"count_stored_{table}_{event.lower()}"
            if _is_postgresql():
                body = f"BEGIN {_add(counted, 'changed', sign)} FROM changed WHERE {_counts(counted, 'changed')}"
                op.execute(
                    f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ {body}"
                    f" GROUP BY 1; RETURN NULL; END $$"
                )
                op.execute(
                    f"CREATE TRIGGER {name} AFTER {event} ON {table} REFERENCING {changed} TABLE AS changed"
                    f" FOR EACH STATEMENT EXECUTE FUNCTION {name}()"
                )
            else:
                when = f"AFTER {event} ON {table} WHEN {_counts(counted, row)}"
                op.execute(f"CREATE TRIGGER {name} {when} BEGIN {_one(counted, row, sign)}; END")
        source = f"FROM {table} AS every WHERE {_counts(counted, 'every')} GROUP BY 1"
        op.execute(f"{_add(counted, 'every', '')} {source}")


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    for table, counted in _tables().items():
        for event in ("insert", "delete"):
            name = f"count_stored_{table}_{event}"
            op.execute(f"DROP TRIGGER {name}{f' ON {table}' if _is_postgresql() else ''}")
            if _is_postgresql():
                op.execute(f"DROP FUNCTION {name}()")
        op.execute(f"{_add(counted, 'every', '-')} FROM {table} AS every WHERE {_counts(counted, 'every')} GROUP BY 1")


def _is_postgresql() -> bool:
    return op.get_bind().dialect.name == "postgresql"


def _tables() -> dict[str, Counted]:
    found = "CASE WHEN json_valid({row}.data) THEN json_extract({row}.data, '$.by') END"  # a migration fails on no text
    by = "{row}.data ->> 'by'" if _is_postgresql() else found
    of_job = "(SELECT owner FROM jobs WHERE jobs.id = {row}.job_id)"
    return {
        # The others count with their attempts, or are as many as its states.
        "job_events": Counted(of_job, "{row}.data", f"{by} IS NOT NULL"),
        "audit": Counted("{row}.who", "{row}.object", "{row}.who <> ''"),  # nobody's: a failed login
    }


def _counts(counted: Counted, row: str) -> str:
    return counted.counts.format(row=row)


def _size(counted: Counted, row: str) -> str:
    text = counted.text.format(row=row)
    length = f"octet_length({text}::text)" if _is_postgresql() else f"length(CAST({text} AS BLOB))"
    return f"{ROW_BYTES} + {length}"


def _add(counted: Counted, row: str, sign: str) -> str:
    """Returns the beginning of a statement that counts rows of a source."""
    owner, size = counted.owner.format(row=row), _size(counted, row)
    return f"INSERT INTO stored_counts (owner, files, written) SELECT {owner}, 0, {sign}sum({size})"


def _one(counted: Counted, row: str, sign: str) -> str:
    """Returns the statement that counts the row of a trigger."""
    owner, size = counted.owner.format(row=row), _size(counted, row)
    return f"INSERT INTO stored_counts (owner, files, written) SELECT {owner}, 0, {sign}({size})"
