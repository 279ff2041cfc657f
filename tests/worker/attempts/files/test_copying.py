"""A file is copied as it was when it was looked at."""

from pathlib import Path

import pytest

from store.blobs.folder import BlobFolder
from worker.attempts.files.copying import Changed, FileCopy
from worker.attempts.files.matching import Search


def test_no_copy_is_begun_of_a_file_that_has_changed_since(tmp_path: Path) -> None:
    root = tmp_path / "work"
    root.mkdir()
    (root / "a.pt").write_bytes(b"state")
    (match,) = Search(root).find((), ["*.pt"]).values()
    (root / "a.pt").write_bytes(b"a longer state")
    with pytest.raises(Changed):
        FileCopy(root, BlobFolder(tmp_path / "blobs"), match, what="a file")
