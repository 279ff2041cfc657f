import os
from pathlib import Path
import stat

import pytest

from torchyard.host.privatefile import is_held, open_own, write_held, write_private


def test_others_can_never_read_a_private_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[int] = []
    replace = Path.replace

    def recording_replace(self: Path, target: Path) -> Path:
        modes.append(stat.S_IMODE(self.stat().st_mode))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", recording_replace)
    path = tmp_path / "token"
    path.write_text("old")
    path.chmod(0o644)
    before = os.umask(0)
    try:
        write_private(path, "new")
    finally:
        os.umask(before)
    assert modes == [0o600]
    assert (stat.S_IMODE(path.stat().st_mode), path.read_text()) == (0o600, "new")
    assert [*tmp_path.iterdir()] == [path]


def test_a_file_is_held_until_its_writer_closes_it(tmp_path: Path) -> None:
    path = tmp_path / "server"
    with write_held(path, "new"), open_own(path) as file:
        assert is_held(file)
    write_private(path, "other")
    with open_own(path) as file:
        assert not is_held(file) and file.read() == b"other"


@pytest.mark.parametrize("kind", ["link", "FIFO", "readable", "writable"])
def test_a_file_that_is_not_private_is_not_opened(tmp_path: Path, kind: str) -> None:
    path, private = tmp_path / "file", tmp_path / "private"
    write_private(private, "text")
    if kind == "link":
        path.symlink_to(private)
    elif kind == "FIFO":
        os.mkfifo(path, 0o600)
    else:
        private.replace(path)
        path.chmod(0o640 if kind == "readable" else 0o602)
    with pytest.raises(PermissionError) as raised:
        open_own(path)
    assert {"link": "a link", "FIFO": "no regular file"}.get(kind, "its mode") in str(raised.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_private(path, "text")
    os.chown(path, 65534, 65534)
    with pytest.raises(PermissionError, match="belongs to the user 65534"):
        open_own(path)
