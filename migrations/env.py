"""What Alembic runs: one transaction over all revisions, on the database that `migrations.__main__` names."""

from alembic import context

from store.database import Database
from store.tables import Base


def run() -> None:
    database = Database(context.config.attributes["url"])
    try:
        with database.engine.connect() as connection:
            context.configure(
                connection=connection, target_metadata=Base.metadata, render_as_batch=True, compare_type=True
            )
            with context.begin_transaction():
                context.run_migrations()
            connection.commit()
    finally:
        database.close()


run()
