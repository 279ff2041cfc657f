"""The archive that a download of a checkpoint in parts sends."""

from collections.abc import Mapping

from torchyard.contract import archives


def archive_of(files: Mapping[str, bytes]) -> bytes:
    """Returns the archive of these files."""
    parts = [
        archives.header(name, len(content)) + content + archives.padding(len(content))
        for name, content in files.items()
    ]
    return b"".join(parts) + archives.END
