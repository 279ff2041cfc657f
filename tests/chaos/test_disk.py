"""The small disk that a chaos run fills."""

import errno
from pathlib import Path

import pytest

from tests.chaos.disk import disk

MIB = 1 << 20


def test_a_filled_disk_refuses_writes_until_it_is_emptied(tmp_path: Path) -> None:
    with disk(tmp_path / "disk", size=4 * MIB) as made:
        if not made.mounted:
            pytest.skip("mounting is not allowed here")
        file = made.folder / "file"
        file.write_bytes(bytes(MIB))
        made.fill()
        with pytest.raises(OSError, match="No space left") as refused:
            (made.folder / "other").write_bytes(bytes(MIB))
        assert refused.value.errno == errno.ENOSPC
        assert file.read_bytes() == bytes(MIB)
        made.empty()
        (made.folder / "other").write_bytes(bytes(MIB))
    assert not made.folder.exists()
    assert str(tmp_path) not in Path("/proc/mounts").read_text()
