import os
from pathlib import Path
import stat

import pytest

from torchyard.host.privatefile import write_private


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
