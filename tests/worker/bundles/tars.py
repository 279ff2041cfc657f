"""Tars of bundles, made block by block, so that a test can spoil any part."""

from collections.abc import Mapping
import hashlib
from io import BytesIO
import os
from pathlib import Path
import stat

from store.blobs.facts import BlobStore
from store.blobs.folder import BlobFolder
from torchyard.contract.bundles.tar import END, header, padding

Tree = Mapping[str, tuple[bytes, bool]]
"""Files by name: the contents, and whether the file can be executed."""


def tar_of(tree: Tree) -> bytes:
    """Returns the tar of a tree, with its names in the right order."""
    names = sorted(tree, key=str.encode)
    return b"".join(_entry(name, *tree[name]) for name in names) + END


def folder_of(blobs: BlobStore) -> BlobFolder:
    """Returns the store of a cache as what it is in tests."""
    assert isinstance(blobs, BlobFolder)
    return blobs


def store(blobs: BlobStore, content: bytes) -> str:
    """Stores a blob and returns its digest."""
    return folder_of(blobs).add(BytesIO(content)).sha256


def store_as(blobs: BlobStore, sha256: str, content: bytes) -> None:
    """Has the store answer `content` for another digest, as a damaged disk does."""
    assert hashlib.sha256(content).hexdigest() != sha256
    path = folder_of(blobs).path(sha256)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def read_tree(root: Path) -> Tree:
    """Returns the files below a folder, and checks that nothing but folders and files with one name is there."""
    found: dict[str, tuple[bytes, bool]] = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            status = path.lstat()
            assert stat.S_ISREG(status.st_mode)
            assert status.st_nlink == 1
            found[str(path.relative_to(root))] = (path.read_bytes(), bool(status.st_mode & stat.S_IXUSR))
    return found


def _entry(name: str, content: bytes, executable: bool) -> bytes:
    return header(name, size=len(content), executable=executable) + content + padding(len(content))
