"""INSERT … ON CONFLICT, for which SQLAlchemy has one statement for each kind of database."""

from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from store.db.tables import Base


def upsert(session: Session, table: type[Base]) -> postgresql.Insert | sqlite.Insert:
    """Returns an INSERT for the session's database, which its `on_conflict_do_…` completes."""
    is_postgresql = session.get_bind().dialect.name == "postgresql"
    return postgresql.insert(table) if is_postgresql else sqlite.insert(table)
