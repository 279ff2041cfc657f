"""How much credit the owners of waiting and running jobs have: by this the line is ordered, beside the jobs."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
import threading
import time
from typing import ClassVar

from sqlalchemy.orm import Session

from scheduling.credit import MOST, OwnerKind
from scheduling.line import credits_among
from scheduling.snapshot import Kind
from store.cluster import occupancy as cluster
from store.db.database import in_us
from store.queue.line.line import line_of
from store.queue.line_facts import Bucket, Credits
from store.team import quotas

_KEY = "torchyard.credits"
_KINDS: tuple[Kind, Kind] = ("cuda", "cpu")


@dataclass
class CreditCache:
    """The newest credits of one program. They change slowly, and each answer with a position needs them."""

    lasting_s: ClassVar[float] = 1.0
    """For so many seconds they are not read again."""

    _found: Credits | None = None
    _read_at: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def known(self, buckets: Collection[Bucket]) -> Credits | None:
        """Returns credits that were right a second ago, those of the owners of these buckets among them."""
        with self._lock:
            known = self._found if time.monotonic() - self._read_at < self.lasting_s else None
        return known if known is not None and all(known.knows(bucket) for bucket in buckets) else None

    def get(self, session: Session, buckets: Collection[Bucket]) -> Credits:
        """Returns those that are known, or reads them."""
        if (known := self.known(buckets)) is not None:
            return known
        credits_read = _read(session, buckets)
        with self._lock:
            self._found, self._read_at = credits_read, time.monotonic()
        return credits_read


def attach(session: Session, cache: CreditCache) -> None:
    """Has the session's transaction use the credits of the program."""
    session.info[_KEY] = cache


def credits(session: Session, buckets: Collection[Bucket] = ()) -> Credits:
    """Returns what the order of the line depends on besides the jobs.

    `buckets`: of queued jobs, which the line may not have yet.
    """
    cache: CreditCache | None = session.info.get(_KEY)
    return _read(session, buckets) if cache is None else cache.get(session, buckets)


def _read(session: Session, buckets: Collection[Bucket]) -> Credits:
    now, hosts, pools = cluster.read_places(session, {})
    devices: Counter[Kind] = Counter(device.kind for host in hosts for device in host.devices)
    auto: Kind = "cuda" if devices["cuda"] else "cpu"
    for pool in pools:
        devices[pool.kind] += pool.devices
    running = cluster.running(session)
    waiting: set[OwnerKind] = {
        (bucket.owner, _kind(bucket.request, auto=auto)) for bucket in (*line_of(session).buckets(), *buckets)
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
