"""How many bytes each owner has stored is kept by the database itself, with those of specs, points and notes

Revision ID: 0049
Revises: 0048
"""

from dataclasses import dataclass

from alembic import op
import sqlalchemy as sa

from migrations.turns import limit_lock_waits

revision = "0049"
down_revision = "0048"
branch_labels = None
depends_on = None

OF_JOB = "(SELECT owner FROM jobs WHERE jobs.id = {row}.job_id)"
OF_SWEEP = "(SELECT owner FROM sweeps WHERE sweeps.id = {row}.sweep_id)"
OWN = "{row}.owner"


@dataclass(frozen=True)
class Counted:
    """What rows of a table have stored: the expressions of their owner and of their bytes."""

    owner: str
    columns: tuple[str, ...]
    """Those on which the bytes depend."""
    kind: str
    """`files` for what jobs store, `written` for what requests have written into the database."""
    size: str = "{row}.size"


def upgrade() -> None:
    limit_lock_waits(op.get_bind())
    op.create_table(
        "stored_counts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("files", sa.BigInteger(), nullable=False),
        sa.Column("written", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_stored_counts"),
    )
    op.create_index("ix_stored_counts_owner", "stored_counts", ["owner", "files", "written"])
    # Before the rows are counted: from here on, nobody else changes one.
    for table, counted in _tables().items():
        for name, body in (_on_postgresql if _is_postgresql() else _on_sqlite)(table, counted).items():
            _create(f"count_stored_{table}_{name}", body)
    _create("count_stored_jobs_cut", _cut())
    for table, counted in _tables().items():
        op.execute(_add(counted, _size(counted, "every"), f"{table} AS every", row="every"))


def downgrade() -> None:
    limit_lock_waits(op.get_bind())
    for table in _tables():
        for name in ("insert", "update", "delete", *(("cut",) if table == "jobs" else ())):
            op.execute(f"DROP TRIGGER count_stored_{table}_{name}{f' ON {table}' if _is_postgresql() else ''}")
            if _is_postgresql():
                op.execute(f"DROP FUNCTION count_stored_{table}_{name}()")
    op.drop_table("stored_counts")


def _is_postgresql() -> bool:
    return op.get_bind().dialect.name == "postgresql"


def _tables() -> dict[str, Counted]:
    return {
        "jobs": Counted(OWN, ("spec", "notes", "card"), "written", _bytes("spec", "notes", "card")),
        "sweeps": Counted(OWN, ("spec",), "written", _bytes("spec")),
        "sweep_trials": Counted(OF_SWEEP, ("point",), "written", _bytes("point")),
        "schedules": Counted(OWN, ("spec",), "written", _bytes("spec")),
        "preferences": Counted(OWN, ("document",), "written", _bytes("document")),
        "bundles": Counted(OWN, ("size",), "files"),
        "checkpoints": Counted(OF_JOB, ("size",), "files"),
        "artifacts": Counted(OF_JOB, ("size",), "files"),
        "media": Counted(OF_JOB, ("size",), "files"),
        "attempts": Counted(OF_JOB, ("point_bytes", "log_bytes", "message_bytes"), "files", _output()),
    }


def _bytes(*columns: str) -> str:
    """Returns the expression of how many bytes the texts in these columns have."""
    of = "octet_length({{row}}.{0}::text)" if _is_postgresql() else "length(CAST({{row}}.{0} AS BLOB))"
    return " + ".join(f"coalesce({of.format(column)}, 0)" for column in columns)


def _output() -> str:
    """Returns the expression of how many bytes of an attempt's output are left after its job was trimmed."""
    cut = f"{_least()}({{row}}.{{0}}, (SELECT {{1}} FROM jobs WHERE jobs.id = {{row}}.job_id))"  # noqa: S608 - no values
    log = cut.replace("{0}", "log_bytes").replace("{1}", "log_cut_to")
    messages = cut.replace("{0}", "message_bytes").replace("{1}", "events_cut_to")
    return f"{{row}}.point_bytes + {log} + {messages}"


def _least() -> str:
    return "least" if _is_postgresql() else "min"


def _size(counted: Counted, row: str) -> str:
    return f"({counted.size.format(row=row)})"


def _add(counted: Counted, size: str, source: str, *, row: str) -> str:
    """Returns the statement that counts `size` of the rows of a source."""
    files, written = (size, "0") if counted.kind == "files" else ("0", size)
    owner = counted.owner.format(row=row)
    # Grouped by number: the owner may be a query.
    return (
        f"INSERT INTO stored_counts (owner, files, written) SELECT {owner}, sum({files}), sum({written})"  # noqa: S608 - no values
        f" FROM {source} GROUP BY 1 HAVING sum({size}) <> 0"
    )


def _one(counted: Counted, size: str, *, row: str) -> str:
    """Returns the statement that counts `size` of the row of a trigger."""
    files, written = (size, "0") if counted.kind == "files" else ("0", size)
    owner = counted.owner.format(row=row)
    return f"INSERT INTO stored_counts (owner, files, written) SELECT {owner}, {files}, {written}"


def _on_sqlite(table: str, counted: Counted) -> dict[str, str]:
    old, new = _size(counted, "OLD"), _size(counted, "NEW")
    columns = ", ".join(counted.columns)
    return {
        "insert": f"AFTER INSERT ON {table} WHEN {new} <> 0 BEGIN {_one(counted, new, row='NEW')}; END",
        "update": (
            f"AFTER UPDATE OF {columns} ON {table} WHEN {new} <> {old}"
            f" BEGIN {_one(counted, f'{new} - {old}', row='NEW')}; END"
        ),
        "delete": f"AFTER DELETE ON {table} WHEN {old} <> 0 BEGIN {_one(counted, f'-{old}', row='OLD')}; END",
    }


def _on_postgresql(table: str, counted: Counted) -> dict[str, str]:
    """Returns when the function of each trigger is called, and its statement."""
    old, new, size = _size(counted, "OLD"), _size(counted, "NEW"), _size(counted, "changed")
    columns = ", ".join(counted.columns)
    update = f"IF {new} <> {old} THEN {_one(counted, f'{new} - {old}', row='NEW')}; END IF"
    each = "REFERENCING {} TABLE AS changed FOR EACH STATEMENT"
    return {
        "insert": f"AFTER INSERT ON {table} {each.format('NEW')}|{_add(counted, size, 'changed', row='changed')}",
        "update": f"AFTER UPDATE OF {columns} ON {table} FOR EACH ROW|{update}",
        "delete": f"AFTER DELETE ON {table} {each.format('OLD')}|{_add(counted, f'-{size}', 'changed', row='changed')}",
    }


def _cut() -> str:
    """Returns what a trigger does when a job is trimmed."""
    left = " + ".join(
        f"{_least()}(a.{size}, NEW.{cut}) - {_least()}(a.{size}, OLD.{cut})"
        for size, cut in (("log_bytes", "log_cut_to"), ("message_bytes", "events_cut_to"))
    )
    add = (
        f"INSERT INTO stored_counts (owner, files, written) SELECT NEW.owner, sum({left}), 0 FROM attempts AS a"  # noqa: S608 - no values
        f" WHERE a.job_id = NEW.id HAVING sum({left}) <> 0"
    )
    when = "AFTER UPDATE OF log_cut_to, events_cut_to ON jobs"
    return f"{when} FOR EACH ROW|{add}" if _is_postgresql() else f"{when} BEGIN {add}; END"


def _create(name: str, body: str) -> None:
    if not _is_postgresql():
        op.execute(f"CREATE TRIGGER {name} {body}")
        return
    when, _, statement = body.partition("|")
    op.execute(
        f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {statement}; RETURN NULL; END $$"
    )
    op.execute(f"CREATE TRIGGER {name} {when} EXECUTE FUNCTION {name}()")
