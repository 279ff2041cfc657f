"""Checks the database and Redis that the settings name."""

from collections.abc import Iterator
import contextlib
from pathlib import Path

from store import probe
from store.blobs.folder import BlobFolder
from store.probe import DatabaseInfo, RedisInfo
from store.queue.announcing import RedisForbids
from store.secret_keys import SecretKeys
from torchyard.contract.errors import ConfigError, Unavailable
from torchyard.host.datadir import redis_url
from worker.doctor.findings import Finding, failed, ok, warning
from worker.settings import Settings

_SKEW_S = 1.0
_SILENT_S = 60.0
"""After so many seconds without a sign, no controller runs."""
_MIGRATE = "python -P -m migrations (torchyard up does it by itself)"


def check_database(settings: Settings) -> Finding:
    file = probe.sqlite_file(settings.database)
    if file is not None and not file.exists():
        return ok("database", f"SQLite, {file}: does not exist yet (torchyard up creates it)")
    try:
        report = probe.inspect_database(settings.database)
    except (ConfigError, Unavailable) as error:
        advice = "check that it runs, TORCHYARD_DATABASE_URL, and that no firewall or pg_hba.conf keeps this host out"
        return failed("database", error.message, advice)
    return _tables(report, embedded=file is not None)


def check_service(settings: Settings) -> Finding:
    """Checks that the database and the folder of blobs are those of one service."""
    file, blobs = probe.sqlite_file(settings.database), BlobFolder(settings.blobs)
    try:
        known = None if file is not None and not file.exists() else probe.inspect_service(settings.database, blobs)
    except ConfigError as error:
        return failed("service", error.message, "mount the service's own folder, or correct the variables")
    except Unavailable:
        return warning("service", "unknown whether the blobs are its own", "see `database`")
    if known is None:
        return ok("service", "it has no id yet: the first program that starts makes it, and marks the folder of blobs")
    return ok("service", f"{known.id}: the database, and the blobs in {settings.blobs}")


def check_secrets(settings: Settings) -> Iterator[Finding]:
    """Checks that this host has the keys of the users' secrets. Yields nothing if there are none."""
    file = probe.sqlite_file(settings.database)
    try:
        used = () if file is not None and not file.exists() else probe.secret_key_ids(settings.database)
        keys = SecretKeys(settings.secret_key.get_secret_value(), settings.secret_key_file)
        missing = sorted(keys.lacking(used))
    except (ConfigError, Unavailable) as error:
        yield warning("secrets", f"unknown whether jobs would get their secrets: {error.message}", "see what it names")
        return
    if missing:
        fact = f"encrypted with keys that this host lacks: {', '.join(missing)}. Jobs that name those secrets fail here"
        yield failed("secrets", fact, "give the API and all workers the same TORCHYARD_SECRET_KEY")
    elif used:
        yield ok("secrets", f"this host has the {len(used)} keys with which they are encrypted")


def check_controller(settings: Settings, *, embedded: Path | None) -> Finding:
    """Checks that a controller does its duties. `embedded` is that of `check_redis`."""
    file = probe.sqlite_file(settings.database)
    try:
        age_s = None if file is not None and not file.exists() else probe.controller_age_s(settings.database)
    except (ConfigError, Unavailable):
        return warning("controller", "unknown whether one runs", "see `database`")
    if age_s is not None and age_s <= _SILENT_S:
        return ok("controller", f"one did its duties {max(age_s, 0):.0f} s ago")
    if not settings.redis_url and embedded is None:
        return ok("controller", "not running (starts with torchyard up)")
    fact = "none has run yet" if age_s is None else f"none has done its duties for {age_s:.0f} s"
    advice = "start `python -P -m controller`, or read its log: sweeps, schedules and notifications wait for it"
    return warning("controller", fact, advice)


def check_redis(settings: Settings, *, embedded: Path | None) -> Finding:
    """`embedded`: the socket of the Redis of `torchyard up`, for settings that name no other."""
    own = not settings.redis_url
    try:
        url = redis_url(settings.root / "redis", socket=embedded) if own else settings.redis_url
        report = probe.inspect_redis(url, service=_service_id(settings))
    except RedisForbids as error:
        return failed("redis", error.message, "give its user the rules in docs/operating/databases.md")
    except (ConfigError, Unavailable) as error:
        if own:
            return ok("redis", "not running (starts with torchyard up)")
        advice = "check that it runs, and TORCHYARD_REDIS_URL. Until then, jobs are accepted, and start later"
        return failed("redis", error.message, advice)
    return _redis(report)


def _redis(redis: RedisInfo) -> Finding:
    if not redis.supported:
        return failed("redis", f"{redis.name}: too old", "update it: Redis 6.2 or later, or Valkey")
    if not redis.writable:
        return failed(
            "redis", f"{redis.name}: a replica, which takes no writes", "name the primary in TORCHYARD_REDIS_URL"
        )
    if redis.missing:
        fact = f"{redis.name}: forbids its user what is needed, so the line is read from the database"
        return failed("redis", fact, f"add to the rules of its user (ACL SETUSER): {' '.join(redis.missing)}")
    wrong: list[tuple[str, str]] = []
    if not redis.appendonly:
        wrong.append(("appendonly no: a restart loses the queue until it is rebuilt", "appendonly yes"))
    if redis.maxmemory_policy != "noeviction":
        wrong.append(
            (f"maxmemory-policy {redis.maxmemory_policy}: it may drop the queue", "maxmemory-policy noeviction")
        )
    if wrong:
        facts, settings_ = zip(*wrong, strict=True)
        return warning("redis", f"{redis.name}, {', '.join(facts)}", f"set in redis.conf: {'; '.join(settings_)}")
    return ok("redis", f"{redis.name}, appendonly yes, maxmemory-policy noeviction")


def _service_id(settings: Settings) -> str:
    """Returns the id with which the keys in Redis begin; one that no service has, if this one has none yet."""
    file = probe.sqlite_file(settings.database)
    known = None
    if file is None or file.exists():
        with contextlib.suppress(ConfigError, Unavailable):  # another finding says so
            known = probe.inspect_service(settings.database, BlobFolder(settings.blobs))
    return "svc_doctor" if known is None else known.id


def _tables(database: DatabaseInfo, *, embedded: bool) -> Finding:
    fact = f"{database.name}, tables at revision {database.revision}"
    if not database.supported:
        return failed("database", f"{fact}: too old", "update it: SQLite 3.40, PostgreSQL 15, or later")
    if database.revision is None:
        return _unmigrated(f"{database.name}: it has no tables yet", embedded=embedded)
    if database.revision < database.oldest:
        advice = f"bring them to {database.oldest} by the last version that has their migrations"
        return failed("database", f"{fact}, and this version reads {database.oldest} and later", advice)
    if database.revision < database.needed:
        return _unmigrated(f"{fact}, and this version needs {database.needed}", embedded=embedded)
    if database.revision > database.needed:
        newer = f"{fact}, newer than this version's {database.needed}"
        return failed("database", newer, "install the newer version of Torchyard here")
    return ok("database", f"{fact} (the newest)") if embedded else _clocks(fact, database)


def _unmigrated(fact: str, *, embedded: bool) -> Finding:
    return (warning if embedded else failed)("database", fact, _MIGRATE)


def _clocks(fact: str, database: DatabaseInfo) -> Finding:
    skew = abs(database.clock_ahead_s)
    side = "ahead of" if database.clock_ahead_s > 0 else "behind"
    if skew - database.clock_uncertainty_s > _SKEW_S:
        skewed = f"{fact}; its clock is {skew:.1f} s {side} this host's, so times in logs and in the database differ"
        return warning("database", skewed, "synchronise both clocks: timedatectl set-ntp true, or chrony")
    return ok(
        "database", f"{fact} (the newest), its clock within {skew + database.clock_uncertainty_s:.3f} s of this host's"
    )
