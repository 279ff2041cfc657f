"""The identity of a service: an id that its database has, and its folder of blobs. No program serves two of them.

A database without an id gets one from the first program that starts on it, which marks the folder of blobs. From then
on the database belongs to the folder with that mark. The keys in Redis begin with the id.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
import secrets
import socket

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from store.blobs.folder import BlobFolder
from store.db.database import Database
from store.db.revision import require_migrated
from store.db.upsert import upsert
from store.tables import Service
from torchyard.contract.errors import ConfigError, Unavailable
from torchyard.host.disk import PASSING


@dataclass(frozen=True)
class Known:
    """What the database says of the service."""

    id: str
    blobs: str | None
    """The host and the path of its folder of blobs when that was marked; None if none was marked yet."""


class ServiceIdentity:
    """Of one program's database and blobs. Any number of threads may use it."""

    def __init__(self, database: Database, blobs: BlobFolder) -> None:
        self._database = database
        self._blobs = blobs
        self._id: str | None = None

    @property
    def known(self) -> str | None:
        """The service's id, once `require` has returned it."""
        return self._id

    def require(self) -> str:
        """Returns the service's id. The first call checks that the blobs are the service's, and binds them to it.

        Raises ConfigError if they are not, NotMigrated if the tables are too old, and Unavailable.
        """
        if self._id is None:
            with self._database.read() as session:
                require_migrated(session.connection())
                known = read(session)
            if known is None or known.blobs is None:
                service_id(self._database)
                # Programs that start together take turns: the row is locked.
                with self._database.write("identify") as session:
                    known = _adopted(session, self._blobs)
            check(known, self._blobs)
            self._blobs.bind(known.id)
            self._id = known.id
        return self._id


def service_id(database: Database) -> str:
    """Returns the id in the database, which gets one if it has none. Raises Unavailable."""
    with database.read() as session:
        known = read(session)
    if known is not None:
        return known.id
    # It is committed before any folder is marked with it.
    with database.write("identify") as session:
        new = upsert(session, Service).values(number=1, id=f"svc_{secrets.token_hex(8)}")
        session.execute(new.on_conflict_do_nothing())
        return session.scalars(select(Service.id)).one()


def read(session: Session) -> Known | None:
    """Returns what the database says of the service; None if no program has started on it yet."""
    row = session.execute(select(Service.id, Service.blobs)).first()
    return None if row is None else Known(row.id, row.blobs)


def check(known: Known, blobs: BlobFolder) -> None:
    """Raises ConfigError if the blobs are not those of the service, and Unavailable."""
    with _disk_errors(blobs):
        owner = blobs.owner
    if owner != known.id:
        raise _refusal(known, blobs, owner)


def move(database: Database, blobs: BlobFolder) -> None:
    """Stores that the service's folder of blobs is this one. Raises Unavailable."""
    with database.write("identify") as session:
        session.execute(update(Service).values(blobs=_place(blobs)))


def _adopted(session: Session, blobs: BlobFolder) -> Known:
    """Makes the folder the one of the service, unless the database knows another by now. Raises what `check` does."""
    row = session.scalars(select(Service).with_for_update()).one()
    if row.blobs is None:
        with _disk_errors(blobs):
            owner = blobs.owner
            if owner is None:
                blobs.mark(row.id)
                owner = blobs.owner
        if owner != row.id:
            raise _refusal(Known(row.id, None), blobs, owner)
        row.blobs = _place(blobs)
    return Known(row.id, row.blobs)


def _place(blobs: BlobFolder) -> str:
    return f"{socket.gethostname()}:{blobs.root}"


def _refusal(known: Known, blobs: BlobFolder, owner: str | None) -> ConfigError:
    what = "it has no file `service`, as a folder on which nothing is mounted" if owner is None else f"it is {owner}'s"
    own = f"whose blobs are in {known.blobs}" if known.blobs is not None else "which has no folder of blobs yet"
    return ConfigError(
        f"{blobs.root} is not the folder of this service's blobs: {what}. The database is that of {known.id}, {own}:"
        f" mount that folder at {blobs.root}, or correct TORCHYARD_DATA_DIR or TORCHYARD_DATABASE_URL"
        " (docs/operating/data-directory.md, One database and one folder of blobs)"
    )


@contextmanager
def _disk_errors(blobs: BlobFolder) -> Generator[None]:
    """Raises Unavailable for an OSError that may pass, and ConfigError for others."""
    try:
        yield
    except OSError as error:
        kind = Unavailable if error.errno in PASSING else ConfigError
        raise kind(f"the folder of blobs {blobs.root} cannot be used: {error.strerror or error}") from error
