"""The bundles of one user: complete ones by their rows, unfinished uploads by their files.

All of them raise Unavailable and OSError.
"""

from collections.abc import Sequence

from store import pages
from store.bundles import rows as bundles
from store.bundles.facts import BundleFacts
from store.bundles.folder import Partial, Uploads
from store.pages import FactPage
from store.store import Store
from torchyard.contract.errors import NotFound
from torchyard.contract.parts import SharedParts, shared_parts

_MOST_PARTS = 65_536
"""Parts of the newest bundles among which others are looked for: of 64 GiB and more."""
_MOST_BUNDLES = 1000

BundleCursor = tuple[int, str]
"""The place of a bundle in the list: the time of its start or end, and its sha256."""


def find_complete(store: Store, owner: str, sha256: str) -> BundleFacts | None:
    """Returns the user's complete bundle, or None, also if its blob is lost."""
    with store.read() as session:
        found = bundles.find(session, owner, sha256)
    return found if found is not None and store.blobs.has(sha256, size=found.size) else None


def get(store: Store, owner: str, sha256: str) -> BundleFacts | Partial:
    """Returns the user's bundle, or what has arrived of it. Raises NotFound."""
    found = find_complete(store, owner, sha256) or Uploads(store.blobs.uploads).find(owner, sha256)
    if found is None:
        raise NotFound(f"there is no bundle {sha256}")
    return found


def newest_first(
    store: Store, owner: str, *, limit: int, after: BundleCursor | None = None, name: str | None = None
) -> FactPage[BundleFacts | Partial]:
    """Returns the user's bundles and unfinished uploads; with `after`, only older ones, and only that of a `name`."""
    with store.read() as session:
        complete = bundles.newest_first(session, owner, limit=limit + 1, after=after, name=name)
    if name is not None:
        return pages.first(complete, limit)
    known = {bundle.sha256 for bundle in complete}
    partial = [item for item in Uploads(store.blobs.uploads).list_of(owner) if item.sha256 not in known]
    found = [*complete, *(item for item in partial if after is None or cursor_of(item) < after)]
    return pages.first(sorted(found, key=cursor_of, reverse=True), limit)


def shared(store: Store, owner: str, wanted: Sequence[bytes]) -> list[SharedParts]:
    """Returns which of these parts are in complete bundles of the user. Nobody learns what others have."""
    with store.read() as session:
        rows = bundles.parts_of(session, owner, most=_MOST_PARTS, bundles=_MOST_BUNDLES)
    sizes = {sha256: size for sha256, size, _ in rows}
    found = shared_parts(wanted, ((sha256, parts) for sha256, _, parts in rows))
    there = {source for source in {run.source for run in found} if store.blobs.has(source, size=sizes[source])}
    return [run for run in found if run.source in there]


def cursor_of(item: BundleFacts | Partial) -> BundleCursor:
    """Returns the place of an item in the list."""
    return (item.created_at if isinstance(item, BundleFacts) else item.started_at), item.sha256
