"""How much credit the owners of waiting and running jobs have: by this the line is ordered, beside the jobs."""

from collections import Counter
from dataclasses import dataclass, field
import threading
import time

from sqlalchemy.orm import Session

from scheduling.credit import MOST, OwnerKind
from scheduling.line import credits_among
from scheduling.snapshot import Kind
from store.db.database import in_us
from store.facts.line import Credits
from store.line.line import line_of
from store.rows import cluster, quotas

_KEY = "torchyard.credits"
_LASTING_S = 1.0
_KINDS: tuple[Kind, Kind] = ("cuda", "cpu")


@dataclass
class CreditCache:
    """The newest credits of one program. They change slowly, and each answer with a position needs them."""

    _found: Credits | None = None
    _read_at: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, session: Session) -> Credits:
        """Returns credits that were right a second ago."""
        with self._lock:
            if self._found is not None and time.monotonic() - self._read_at < _LASTING_S:
                return self._found
        found = _read(session)
        with self._lock:
            self._found, self._read_at = found, time.monotonic()
        return found


def attach(session: Session, cache: CreditCache) -> None:
    """Has the session's transaction use the credits of the program."""
    session.info[_KEY] = cache


def credits(session: Session) -> Credits:
    """Returns what the order of the line depends on besides the jobs."""
    cache: CreditCache | None = session.info.get(_KEY)
    return _read(session) if cache is None else cache.get(session)


def _read(session: Session) -> Credits:
    now, hosts = cluster.hosts(session, {})
    devices: Counter[Kind] = Counter(device.kind for host in hosts for device in host.devices)
    auto: Kind = "cuda" if devices["cuda"] else "cpu"
    running = cluster.running(session)
    waiting: set[OwnerKind] = {
        (bucket.owner, _kind(bucket.request, auto=auto)) for bucket in line_of(session).buckets()
    }
    owners = {owner for owner, _ in waiting} | {job.owner for job in running}
    by_owner = credits_among(
        devices, running, cluster.uses(session, owners, now=now), waiting, now=now, any_gpu=auto == "cuda"
    )
    limited = quotas.allowances(session, {owner for owner, _ in waiting})
    over = {owner for owner, allowance in limited.items() if allowance.refusal(1) is not None}
    over_quota = frozenset((owner, kind) for owner in over for kind in _KINDS)
    return Credits({**by_owner}, in_us(MOST), auto, over_quota)


def _kind(request: str, *, auto: Kind) -> Kind:
    if request == "auto":
        return auto
    return "cuda" if request == "cuda" else "cpu"
