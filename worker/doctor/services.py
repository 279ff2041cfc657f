"""Checks the database and Redis that the settings name."""

import functools
from pathlib import Path
import subprocess
import sys

from store import probe
from store.probe import DatabaseInfo
from torchyard.contract.datadir import redis_url
from torchyard.contract.errors import ConfigError, Unavailable
from worker.doctor.findings import Finding, failed, ok, warning
from worker.settings import Settings

_SKEW_S = 1.0
_MIGRATE = "python -P -m migrations (torchyard up does it by itself)"


def check_database(settings: Settings) -> Finding:
    file = probe.sqlite_file(settings.database)
    if file is not None and not file.exists():
        return ok("database", f"SQLite, {file}: does not exist yet (torchyard up creates it)")
    try:
        found = probe.inspect_database(settings.database)
        head = _head()
    except (ConfigError, Unavailable) as error:
        advice = "check that it runs, TORCHYARD_DATABASE_URL, and that no firewall or pg_hba.conf keeps this host out"
        return failed("database", error.message, advice)
    return _tables(found, head, embedded=file is not None)


def check_redis(settings: Settings, *, embedded: Path | None) -> Finding:
    """`embedded`: the socket of the Redis of `torchyard up`, for settings that name no other."""
    own = not settings.redis_url
    try:
        url = redis_url(settings.root / "redis", socket=embedded) if own else settings.redis_url
        found = probe.inspect_redis(url)
    except (ConfigError, Unavailable) as error:
        if own:
            return ok("redis", "not running (starts with torchyard up)")
        advice = "check that it runs, and TORCHYARD_REDIS_URL. Until then, jobs are accepted, and start later"
        return failed("redis", error.message, advice)
    wrong: list[tuple[str, str]] = []
    if not found.supported:
        return failed("redis", f"{found.name}: too old", "update it: Redis 6.2 or later, or Valkey")
    if not found.writable:
        return failed(
            "redis", f"{found.name}: a replica, which takes no writes", "name the primary in TORCHYARD_REDIS_URL"
        )
    if not found.appendonly:
        wrong.append(("appendonly no: a restart loses the queue until it is rebuilt", "appendonly yes"))
    if found.maxmemory_policy != "noeviction":
        wrong.append(
            (f"maxmemory-policy {found.maxmemory_policy}: it may drop the queue", "maxmemory-policy noeviction")
        )
    if wrong:
        facts, settings_ = zip(*wrong, strict=True)
        return warning("redis", f"{found.name}, {', '.join(facts)}", f"set in redis.conf: {'; '.join(settings_)}")
    return ok("redis", f"{found.name}, appendonly yes, maxmemory-policy noeviction")


def _tables(found: DatabaseInfo, head: str, *, embedded: bool) -> Finding:
    fact = f"{found.name}, tables at revision {found.revision}"
    if not found.supported:
        return failed("database", f"{fact}: too old", "update it: SQLite 3.40, PostgreSQL 15, or later")
    if found.revision is None:
        return _unmigrated(f"{found.name}: it has no tables yet", embedded=embedded)
    if found.revision < head:
        return _unmigrated(f"{fact}, and this version needs {head}", embedded=embedded)
    if found.revision > head:
        return failed(
            "database", f"{fact}, newer than this version's {head}", "install the newer version of Torchyard here"
        )
    return ok("database", f"{fact} (the newest)") if embedded else _clocks(fact, found)


def _unmigrated(fact: str, *, embedded: bool) -> Finding:
    return (warning if embedded else failed)("database", fact, _MIGRATE)


def _clocks(fact: str, found: DatabaseInfo) -> Finding:
    skew = abs(found.clock_ahead_s)
    side = "ahead of" if found.clock_ahead_s > 0 else "behind"
    if skew - found.clock_uncertainty_s > _SKEW_S:
        skewed = f"{fact}; its clock is {skew:.1f} s {side} this host's, so times in logs and in the database differ"
        return warning("database", skewed, "synchronise both clocks: timedatectl set-ntp true, or chrony")
    return ok(
        "database", f"{fact} (the newest), its clock within {skew + found.clock_uncertainty_s:.3f} s of this host's"
    )


@functools.cache
def _head() -> str:
    """Returns the newest revision that this version knows. Raises ConfigError."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "migrations", "heads"], capture_output=True, text=True, check=False
    )
    if done.returncode != 0 or not done.stdout:
        raise ConfigError(f"python -P -m migrations heads failed: {done.stderr.strip()[-300:]}")
    return done.stdout.split()[0]
