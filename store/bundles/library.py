"""The bundles of one user: complete ones by their rows and blobs, unfinished uploads by their files.

Each takes the store, as it looks at both, the files outside of its transaction. All of them raise Unavailable and
OSError.
"""

from collections.abc import Sequence
from datetime import timedelta

from store import pages
from store.blobs.partial import disk_errors
from store.bundles import bundles
from store.bundles.facts import BundleFacts
from store.bundles.folder import Partial, Uploads
from store.pages import FactPage
from store.store import Store
from store.team import audit
from store.team.callers import Caller
from torchyard.contract.bundles.parts import SharedParts, shared_parts
from torchyard.contract.errors import NotFound

_MOST_PARTS = 65_536
"""Parts of the newest bundles among which others are looked for: of 64 GiB and more."""
_MOST_BUNDLES = 1000

BundleCursor = tuple[int, str]
"""Where a bundle stands in the list: the time of its start or end, and its sha256."""


def find_complete(store: Store, owner: str, sha256: str) -> BundleFacts | None:
    """Returns the user's complete bundle, or None, also if its blob is lost."""
    with store.read() as session:
        bundle = bundles.find(session, owner, sha256)
    return bundle if bundle is not None and store.blobs.has(sha256, size=bundle.size) else None


def find(store: Store, owner: str, sha256: str) -> BundleFacts | Partial:
    """Returns the user's bundle, or what has arrived of it. Raises NotFound."""
    bundle = find_complete(store, owner, sha256) or Uploads(store.blobs.uploads).find(owner, sha256)
    if bundle is None:
        raise NotFound(f"there is no bundle {sha256}")
    return bundle


def list_newest(
    store: Store, owner: str, *, limit: int, after: BundleCursor | None = None, name: str | None = None
) -> FactPage[BundleFacts | Partial]:
    """Returns the user's bundles and unfinished uploads; with `after`, only older ones, and only that of a `name`."""
    with store.read() as session:
        complete = bundles.list_newest(session, owner, limit=limit + 1, after=after, name=name)
    if name is not None:
        return pages.first(complete, limit)
    known = {bundle.sha256 for bundle in complete}
    partial = [item for item in Uploads(store.blobs.uploads).list_uploads(owner) if item.sha256 not in known]
    both = [*complete, *(item for item in partial if after is None or cursor_of(item) < after)]
    return pages.first(sorted(both, key=cursor_of, reverse=True), limit)


def find_shared_parts(store: Store, owner: str, wanted: Sequence[bytes]) -> list[SharedParts]:
    """Returns which of these parts are in complete bundles of the user. Nobody learns what others have."""
    with store.read() as session:
        rows = bundles.list_parts(session, owner, most=_MOST_PARTS, bundles=_MOST_BUNDLES)
    sizes = {sha256: size for sha256, size, _ in rows}
    runs = shared_parts(wanted, ((sha256, parts) for sha256, _, parts in rows))
    there = {source for source in {run.source for run in runs} if store.blobs.has(source, size=sizes[source])}
    return [run for run in runs if run.source in there]


def remove(store: Store, sha256: str, *, caller: Caller) -> None:
    """Removes the caller's bundle, or what has arrived of it.

    Raises NotFound, Conflict while a job that has not ended uses it, and TooManyRequests while it is being checked.
    """
    with disk_errors():
        with store.write("bundle") as session:
            removed = bundles.remove(session, caller.name, sha256)
            if removed:
                audit.add(session, caller, "bundle.delete", sha256)
        if not Uploads(store.blobs.uploads).remove(caller.name, sha256) and not removed:
            raise NotFound(f"there is no bundle {sha256}")


def remove_unused(store: Store, *, age: timedelta | None, limit: int = 100) -> int:
    """Removes bundles that were not used for `age` (None: none) and that no stored job names; returns their number.

    Removes abandoned uploads as well.
    """
    Uploads(store.blobs.uploads).remove_abandoned()
    if age is None:
        return 0
    with store.write("collect") as session:
        return len(bundles.remove_unused(session, age=age, limit=limit))


def cursor_of(item: BundleFacts | Partial) -> BundleCursor:
    """Returns where an item stands in the list."""
    return (item.created_at if isinstance(item, BundleFacts) else item.started_at), item.sha256
