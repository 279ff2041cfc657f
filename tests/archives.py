"""The tar that a download of a checkpoint in several files sends, and the digest of their list."""

from collections.abc import Mapping
import hashlib

from torchyard.contract.files import archives


def archive_of(files: Mapping[str, bytes]) -> bytes:
    """Returns the tar of these files."""
    parts = [
        archives.header(name, len(content)) + content + archives.padding(len(content))
        for name, content in sorted(files.items(), key=lambda file: file[0].encode())
    ]
    return b"".join(parts) + archives.END


def digest_of(files: Mapping[str, bytes]) -> str:
    """Returns the sha256 of what `sha256sum` prints of these files, in the order of their paths."""
    lines = [(name.encode(), hashlib.sha256(content).hexdigest().encode()) for name, content in files.items()]
    return hashlib.sha256(b"".join(sha256 + b"  " + name + b"\n" for name, sha256 in sorted(lines))).hexdigest()
