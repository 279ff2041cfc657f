"""Uploads of bundles. Each takes the store: files are written between its transactions.

All of them raise Unavailable, also if the disk is full or does not answer.
"""

from dataclasses import dataclass

from sqlalchemy.orm import Session

from store.blobs import garbage, puts
from store.blobs.facts import Put
from store.blobs.partial import PartialFile, disk_errors
from store.bundles import bundles
from store.bundles.checking import check
from store.bundles.facts import BundleFacts
from store.bundles.folder import Uploads
from store.bundles.library import find_complete
from store.store import Store
from store.team import audit, quotas, users
from store.team.callers import Caller
from torchyard.contract.bundles.tar import BundleContents
from torchyard.contract.errors import Conflict, InvalidBundle, InvalidRequest, NotFound, TooLarge, Unavailable
from torchyard.host.disk import require_free_space
from torchyard.host.failpoints import failpoint

_CHUNK = 1 << 20


@dataclass(frozen=True)
class Upload:
    """A request to upload the tar of a bundle of `size` bytes, from byte `offset`."""

    sha256: str
    size: int
    offset: int
    max_bytes: int
    max_files: int


@dataclass(frozen=True)
class Piece:
    """Bytes of a complete bundle: `size` of them from `start`."""

    source: str
    start: int
    size: int


def begin(store: Store, upload: Upload, *, caller: Caller, copies: Piece | None = None) -> BundleFacts | PartialFile:
    """Returns the caller's bundle if it is complete, else the file to append to, which the caller closes.

    `copies`: what is to be appended of another bundle. Raises what `copy` raises for that, TooLarge, QuotaExceeded,
    Conflict if other bytes have arrived than `offset`, and TooManyRequests.
    """

    def admit(unfinished: int) -> None:
        with store.read() as session:
            quotas.check_upload(session, caller.name, upload.size, unfinished=unfinished)
        require_free_space(store.blobs.uploads, upload.size - upload.offset)

    if upload.size > upload.max_bytes:
        raise TooLarge(f"the bundle has {upload.size} bytes; the maximum is {upload.max_bytes}")
    uploads = Uploads(store.blobs.uploads)
    with disk_errors(), uploads.locked(caller.name):
        if (row := find_complete(store, caller.name, upload.sha256)) is not None:
            return row
        if copies is not None:
            _require_source(store, copies, caller=caller)
        return uploads.open(caller.name, upload.sha256, size=upload.size, offset=upload.offset, admit=admit)


def append(partial: PartialFile, upload: Upload, data: bytes) -> None:
    """Appends bytes of the tar. Raises InvalidBundle, and removes the file, if they are more than the upload's size.

    Raises Conflict and TooManyRequests if another request appends to the file.
    """
    with disk_errors():
        if partial.at + len(data) > upload.size:
            with partial.locked():
                partial.path.unlink()
            raise InvalidBundle(f"more bytes arrived than `size`, which is {upload.size}: the upload was deleted")
        partial.append(data)


def copy(store: Store, partial: PartialFile, upload: Upload, piece: Piece, *, caller: Caller) -> None:
    """Appends bytes of another bundle of the caller.

    Raises NotFound if that is not a complete bundle of theirs, InvalidRequest if it has not so many bytes, and what
    `append` raises.
    """
    _require_source(store, piece, caller=caller)
    with disk_errors(), store.blobs.open(piece.source) as file:
        file.seek(piece.start)
        left = piece.size
        while left:
            data = file.read(min(left, _CHUNK))
            if not data:
                raise InvalidBundle(f"the stored bundle {piece.source} is damaged: delete it, and upload it again")
            append(partial, upload, data)
            left -= len(data)


def withdraw(partial: PartialFile, upload: Upload) -> None:
    """Removes what this request has appended. Raises Conflict and TooManyRequests if another one changed the file."""
    with disk_errors(), partial.locked():
        partial.cut(upload.offset)


def finish(store: Store, partial: PartialFile, upload: Upload, *, caller: Caller) -> BundleFacts | None:
    """Makes what has arrived durable. If that is all, checks it and returns the new bundle of the caller, else None.

    Raises InvalidBundle, and removes the file, if its digest or its contents are wrong; QuotaExceeded; and Conflict and
    TooManyRequests if another request has changed the file.
    """
    with disk_errors():
        try:
            with partial.locked():
                if partial.at < upload.size:
                    partial.sync()
                    return None
                contents = _checked(partial, upload)
                failpoint("blob.fsync")
                partial.sync()
                return _publish(store, partial, upload, contents, caller=caller)
        except Conflict:
            row = find_complete(store, caller.name, upload.sha256)  # by a request for the same bytes
            if row is None:
                raise
            return row


def _require_source(store: Store, piece: Piece, *, caller: Caller) -> None:
    source = find_complete(store, caller.name, piece.source)
    if source is None:
        raise NotFound(f"there is no complete bundle {piece.source}")
    if piece.start + piece.size > source.size:
        wrong = f"bundle {piece.source} has {source.size} bytes: there are not {piece.size} from byte {piece.start}"
        raise InvalidRequest(wrong)


def _checked(partial: PartialFile, upload: Upload) -> BundleContents:
    """Reads the whole file. Raises InvalidBundle and removes it if it is not the bundle of that digest."""
    try:
        return check(
            partial.path,
            sha256=upload.sha256,
            size=upload.size,
            max_files=upload.max_files,
            max_bytes=upload.max_bytes,
        )
    except InvalidBundle:
        partial.path.unlink()
        raise


def _publish(
    store: Store, partial: PartialFile, upload: Upload, contents: BundleContents, *, caller: Caller
) -> BundleFacts:
    sha256, owner = upload.sha256, caller.name
    with Uploads(store.blobs.uploads).locked(owner):
        # The blob is garbage until its row is there: if this ends in between, the collector removes it.
        with store.write("upload") as session:
            garbage.add_blobs(session, [sha256])
            put = puts.begin(session, [sha256])
        store.blobs.publish(partial.path, sha256)
        with store.write("bundle") as session:
            _require_put(session, put)
            users.lock(session, owner)
            quotas.check_upload(session, owner, upload.size)
            row = bundles.add(session, owner, sha256, size=upload.size, files=contents.files, parts=contents.parts)
            audit.add(session, caller, "bundle.upload", sha256)
    return row


def _require_put(session: Session, put: Put) -> None:
    try:
        puts.check(session, put)
    except Conflict as error:
        raise Unavailable(error.message) from None
