"""The bundles of one user: complete ones by their rows, unfinished uploads by their files."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from store.blobs import Blobs
from store.db.tables import Bundle
from store.rows import bundles
from store.uploads.folder import Partial, Uploads
from torchyard.contract.errors import NotFound

BundleCursor = tuple[int, str]
"""The place of a bundle in the list: the time of its start or end, and its sha256."""


def find_complete(session: Session, blobs: Blobs, owner: str, sha256: str) -> Bundle | None:
    """Returns the user's complete bundle, or None, also if its blob is lost. Raises OSError."""
    row = bundles.find(session, owner, sha256)
    return row if row is not None and blobs.has(sha256, size=row.size) else None


def get(session: Session, blobs: Blobs, owner: str, sha256: str) -> Bundle | Partial:
    """Returns the user's bundle, or what has arrived of it. Raises NotFound and OSError."""
    found = find_complete(session, blobs, owner, sha256) or Uploads(blobs.uploads).find(owner, sha256)
    if found is None:
        raise NotFound(f"there is no bundle {sha256}")
    return found


def newest_first(
    session: Session, blobs: Blobs, owner: str, *, limit: int, behind: BundleCursor | None = None
) -> Sequence[Bundle | Partial]:
    """Returns the user's bundles and unfinished uploads; with `behind`, only older ones. Raises OSError."""
    complete = bundles.newest_first(session, owner, limit=limit, behind=behind)
    known = {row.sha256 for row in complete}
    partial = [item for item in Uploads(blobs.uploads).list_of(owner) if item.sha256 not in known]
    found = [*complete, *(item for item in partial if behind is None or cursor_of(item) < behind)]
    return sorted(found, key=cursor_of, reverse=True)[:limit]


def cursor_of(item: Bundle | Partial) -> BundleCursor:
    """Returns the place of an item in the list."""
    return (item.created_at if isinstance(item, Bundle) else item.started_at), item.sha256
