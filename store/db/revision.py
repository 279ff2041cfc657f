"""The revision of the tables that this version's programs need."""

from sqlalchemy import Connection, inspect, text

from torchyard.contract.errors import NotMigrated

REVISION = "0070"
"""The newest migration."""
OLDEST = "0060"
"""The first migration, which makes all tables."""
MIGRATE = "run `python -P -m migrations` (`torchyard up` does it by itself)"


def too_old(what: str) -> str:
    """Returns the error of tables that are older than the first migration. `what`: names them and their revision."""
    return (
        f"{what}, and this version of Torchyard reads {OLDEST} and later: bring them to {OLDEST} by the last version"
        " that has their migrations, or start with a new database"
    )


def revision_of(connection: Connection) -> str | None:
    """Returns the revision of the tables; None if there are none."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.scalars(text("SELECT version_num FROM alembic_version")).first()


def require_migrated(connection: Connection) -> None:
    """Raises NotMigrated if the tables are older than this version needs."""
    revision = revision_of(connection)
    if revision is None:
        raise NotMigrated(f"the database has no tables yet: {MIGRATE}")
    if revision < OLDEST:
        raise NotMigrated(too_old(f"the database's tables are at revision {revision}"))
    if revision < REVISION:
        raise NotMigrated(
            f"the database's tables are at revision {revision}, and this version of Torchyard needs {REVISION}:"
            f" {MIGRATE}"
        )
