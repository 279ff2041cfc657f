"""Reads the versions and settings of the database and Redis, for `torchyard doctor`. Changes nothing."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
import time

from sqlalchemy import inspect, make_url, select
from sqlalchemy.exc import ArgumentError

from store import service_identity
from store.blobs.folder import BlobFolder
from store.cluster import controllers, workers
from store.db.database import Database, now_us
from store.db.revision import OLDEST, REVISION, revision_of
from store.notifications import targets
from store.queue.announcing import missing_permissions, server_info
from store.service_identity import Known
from store.tables import Worker
from store.team import secrets
from torchyard.contract.cluster.devices import StartsReport, TroubleReport

_OLDEST = {"sqlite": (3, 40), "postgresql": (15,)}
_OLDEST_REDIS = (6, 2)


@dataclass(frozen=True)
class DatabaseInfo:
    name: str
    """For example `PostgreSQL 18.1`."""
    supported: bool
    revision: str | None
    """The migration of its tables; None if it has no tables."""
    needed: str
    """The migration that this version of the programs needs."""
    oldest: str
    """The first migration that this version has."""
    clock_ahead_s: float
    """Seconds by which its clock is ahead of this host's."""
    clock_uncertainty_s: float
    """Largest error of `clock_ahead_s`, in seconds."""


@dataclass(frozen=True)
class RedisInfo:
    name: str
    """For example `Redis 7.2.4` or `Valkey 8.0.1`."""
    supported: bool
    appendonly: bool
    maxmemory_policy: str
    """Its setting `maxmemory-policy`."""
    writable: bool
    """False on a replica."""
    missing: Sequence[str]
    """The rules that its user lacks, as `ACL SETUSER` takes them."""


def sqlite_file(url: str) -> Path | None:
    """Returns the file of a SQLite database; None for other databases and for an invalid address."""
    try:
        address = make_url(url)
    except (ArgumentError, ValueError):
        return None
    return Path(address.database) if address.get_backend_name() == "sqlite" and address.database else None


def inspect_database(url: str) -> DatabaseInfo:
    """Connects and reads version, migration and clock. Raises Unavailable and ConfigError."""
    with closing(Database(url, program="torchyard-doctor")) as database, database.read() as session:
        connection = session.connection()
        kind, version = connection.dialect.name, connection.dialect.server_version_info or ()
        revision = revision_of(connection)
        before = time.time()
        now = session.scalars(select(now_us())).one() / 1e6
        after = time.time()
    name = f"{'SQLite' if kind == 'sqlite' else 'PostgreSQL'} {'.'.join(map(str, version))}"
    supported, ahead_s, uncertainty_s = version >= _OLDEST[kind], now - (before + after) / 2, (after - before) / 2
    return DatabaseInfo(name, supported, revision, REVISION, OLDEST, ahead_s, uncertainty_s)


def inspect_service(url: str, blobs: BlobFolder) -> Known | None:
    """Returns what the database says of the service; None if it has no folder of blobs yet.

    Raises ConfigError if the blobs are another service's, and Unavailable.
    """
    with closing(Database(url, program="torchyard-doctor")) as database, database.read() as session:
        known = service_identity.read(session) if inspect(session.connection()).has_table("service") else None
    if known is None or known.blobs is None:
        return None
    service_identity.check(known, blobs)
    return known


def secret_key_ids(url: str) -> Sequence[str]:
    """Returns the ids of the keys that have encrypted secrets and targets. Raises Unavailable."""
    with closing(Database(url, program="torchyard-doctor")) as database, database.read() as session:
        tables = inspect(session.connection()).get_table_names()
        used = {*secrets.key_ids(session)} if "secrets" in tables else set[str]()
        return sorted({*used, *targets.key_ids(session)} if "notification_targets" in tables else used)


def controller_age_s(url: str) -> float | None:
    """Returns the seconds since a controller did its duties; None if none ever has. Raises Unavailable."""
    with closing(Database(url, program="torchyard-doctor")) as database, database.read() as session:
        age = controllers.age(session)
    return None if age is None else age / 1_000_000


def worker_troubles(url: str, worker_id: str) -> Sequence[TroubleReport] | None:
    """Returns what goes wrong in the worker's own work; None if it is not alive. Raises Unavailable."""
    with closing(Database(url, program="torchyard-doctor")) as database, database.read() as session:
        starts = session.execute(select(Worker.starts).where(Worker.id == worker_id, workers.is_alive())).first()
    if starts is None:
        return None
    return () if starts.starts is None else StartsReport.from_dict(starts.starts).troubles


def inspect_redis(url: str, *, service: str) -> RedisInfo:
    """Connects, reads version and settings, and asks what its user may do with the keys of the service with this id.

    Raises Unavailable and ConfigError.
    """
    info = server_info(url)
    version = str(info["redis_version"])  # Valkey gives the Redis version that it is compatible with
    name = f"Valkey {info['valkey_version']}" if "valkey_version" in info else f"Redis {version}"
    numbers = tuple(int(part) for part in version.split(".")[:2])
    return RedisInfo(
        name,
        supported=numbers >= _OLDEST_REDIS,
        appendonly=bool(info.get("aof_enabled")),
        maxmemory_policy=str(info.get("maxmemory_policy", "unknown")),
        writable=info.get("role") == "master",
        missing=missing_permissions(url, service),
    )
