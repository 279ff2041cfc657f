"""Sends a blob or ranges of it: from this process, or by the proxy in front (X-Accel-Redirect)."""

import base64
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Self

from fastapi import Request
from starlette.responses import Response

from api.auth.callers import Principal
from api.middleware import etags
from api.services import Services
from api.transfers.files import Composed, FileResponse, Layout, Span, Stored, disposition, spans_of
from api.transfers.permits import permit
from store.blobs.folder import BlobFolder
from store.output.checkpoints_facts import ARCHIVE, Files
from torchyard.contract.attempts.rundir import STATE_FILE
from torchyard.contract.files import archives
from torchyard.contract.media.kinds import MEDIA_TYPES

BYTES = "application/octet-stream"
PICTURE = "image/png"
_SUFFIXES = frozenset({STATE_FILE, ARCHIVE})
_SHOWN = frozenset(MEDIA_TYPES)
_PICTURE_HEADERS = {"Content-Security-Policy": "default-src 'none'; sandbox"}
"""Keeps a browser that shows the bytes from running or loading anything: a job wrote them."""


@dataclass(frozen=True)
class Blob:
    """Bytes in the blob store, and under which name to send them. A browser shows a picture, and saves others."""

    sha256: str
    _: KW_ONLY
    size: int
    name: str
    media_type: str = BYTES
    fixed: bool = False
    """Whether the address never has other bytes."""
    files: Files = ()
    """The entries of the files whose tar is sent: then the sha256 is the digest of their list."""

    @classmethod
    def of(cls, entry: Mapping[str, Any], name: str, *, files: Files, path: str | None) -> Self:
        """`entry`: that of `path`, or of what is sent where none is named: then it may be the tar of `files`."""
        all_of = files if "files" in entry else ()
        named = f"{name}{suffix_of(entry['path'])}"
        return cls(entry["sha256"], size=entry["size"], name=named, media_type=media_type_of(path), files=all_of)


def suffix_of(path: str) -> str:
    """Returns the end of the name under which a file of a checkpoint is sent."""
    if path in _SUFFIXES:
        return PurePosixPath(path).suffix
    return f"-{PurePosixPath(path).name}"


def media_type_of(path: str | None) -> str:
    """Returns the type of a file of a checkpoint. None: no file was named, so it is saved."""
    return PICTURE if path is not None and path.endswith(".png") else BYTES


def tar_of(blobs: BlobFolder, files: Files) -> Layout:
    """Returns the tar of files in the blob store. Nothing of them is read."""
    items: list[Composed | Stored] = []
    for file in sorted(files, key=lambda file: file["path"].encode()):
        path, size = file["path"], file["size"]
        items += [
            Composed(archives.header_size(path, size), partial(archives.header, path, size)),
            Stored(blobs.path(file["sha256"]), size),
            Composed(-size % archives.BLOCK, partial(archives.padding, size)),
        ]
    return Layout([*items, Composed(len(archives.END), lambda: archives.END)])


def send_blob(request: Request, services: Services, blob: Blob, caller: Principal, *job_ids: str) -> Response:
    """Returns the answer with the bytes of the blob, which ends when the caller may not read the jobs any more.

    Raises HTTPException (416) if no requested part lies in it, and OSError.
    """
    headers = {
        "ETag": f'"{blob.sha256}"',
        "Cache-Control": "private, max-age=31536000, immutable" if blob.fixed else "private, no-cache",
        "Content-Disposition": disposition(blob.name, inline=blob.media_type in _SHOWN),
    }
    if not blob.files:  # nobody has computed that of a tar
        headers["Repr-Digest"] = f"sha-256=:{base64.b64encode(bytes.fromhex(blob.sha256)).decode()}:"
    if blob.fixed:  # another user of the same browser asks anew
        headers["Vary"] = "Authorization, Cookie"
    if blob.media_type in _SHOWN:
        headers |= _PICTURE_HEADERS
    if (answer := etags.unchanged(request, headers)) is not None:
        return answer
    services.store.blobs.check()
    sendfile = services.settings.sendfile
    # A proxy sends one file, and cannot evaluate If-Range, as the ETag is ours.
    if sendfile and not blob.files and "if-range" not in request.headers:
        path = services.store.blobs.path(blob.sha256)
        return Response(headers=headers | _sendfile_header(sendfile, path), media_type=blob.media_type)
    blobs = services.store.blobs
    return FileResponse(
        tar_of(blobs, blob.files) if blob.files else Layout([Stored(blobs.path(blob.sha256), blob.size)]),
        spans=spans_asked(request, headers["ETag"], size=blob.size),
        headers=headers,
        media_type=blob.media_type,
        permit=lambda: permit(services, caller, *job_ids),
        # The paths of all its files are in memory while it is sent.
        counted=(lambda: services.access.open_streams.open(caller.key)) if blob.files else nullcontext,
    )


def spans_asked(request: Request, etag: str, *, size: int) -> list[Span] | None:
    """Returns the parts of the file that the caller requests, or None for the whole. Raises HTTPException (416)."""
    asked = request.headers.get("range")
    if asked is None or request.method != "GET" or request.headers.get("if-range", etag) != etag:
        return None
    return spans_of(asked, size=size)


def _sendfile_header(sendfile: str, blob: Path) -> dict[str, str]:
    """Returns the header by which the proxy sends the file. It handles `Range` itself."""
    kind, _, location = sendfile.partition(":")
    if kind == "x-sendfile":
        return {"X-Sendfile": str(blob)}
    return {"X-Accel-Redirect": f"{location.rstrip('/')}/{blob.parent.name}/{blob.name}"}
