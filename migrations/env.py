"""Alembic runs this module: all revisions in one transaction, on the database that `migrations.actions` configures."""

from collections.abc import Callable
from contextlib import closing
import warnings

from alembic import context
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import MetaData
from sqlalchemy.schema import SchemaItem

from migrations.turns import check_references, exclusive_transaction
from store.db.database import Database
from store.db.revision import too_old


def run() -> None:
    database = Database(context.config.attributes["url"], program="torchyard-migrations")
    with closing(database), exclusive_transaction(database) as connection:
        context.configure(
            connection=connection,
            target_metadata=_wanted(),
            render_as_batch=True,
            compare_type=True,
            include_object=_is_for(connection.dialect.name),
        )
        before = context.get_context().get_current_heads()
        _require_known(before)
        context.run_migrations()
        if context.get_context().get_current_heads() != before:
            check_references(connection)


def _require_known(found: tuple[str, ...]) -> None:
    """Raises CommandError if the tables are older than the first revision, or newer than the last."""
    known = {script.revision for script in ScriptDirectory.from_config(context.config).walk_revisions()}
    for revision in set(found) - known:
        if revision < min(known):
            raise CommandError(too_old(f"nothing was changed: the tables are at revision {revision}"))
        raise CommandError(
            f"nothing was changed: the tables are at revision {revision}, and this version of Torchyard knows none"
            f" after {max(known)}: install the version that made them, or put a backup back"
        )


def _is_for(dialect: str) -> Callable[..., bool]:
    """Returns a function that says whether a database of this kind has a table, a column or an index."""

    def included(item: SchemaItem, *_: object) -> bool:
        return item.info.get("only_on", dialect) == dialect

    return included


def _wanted() -> MetaData | None:
    """Returns the metadata for `check`. An upgrade does not need it, and loads in half the time without."""
    if not context.config.attributes.get("compares", True):
        return None
    from store.db.tables import Base, load_all

    load_all()

    # SQLite cannot tell of such indexes. Those that there are belong to PostgreSQL alone.
    warnings.filterwarnings("ignore", "autogenerate skipping metadata-specified expression-based index")
    return Base.metadata


run()
