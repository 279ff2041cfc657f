from collections.abc import Generator
from pathlib import Path

import pytest

from store.blobs.folder import BlobFolder
from worker.bundles.cache import BundleCache
from worker.host.untrusted import remove_inside


@pytest.fixture
def cache(tmp_path: Path) -> Generator[BundleCache]:
    """A cache of its own, which is removed with its read-only folders."""
    yield BundleCache(tmp_path / "unpacked", BlobFolder(tmp_path / "blobs"))
    remove_inside(tmp_path, "unpacked")
