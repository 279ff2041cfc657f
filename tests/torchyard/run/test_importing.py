"""Where the imports of a script are looked for."""

from pathlib import Path
import sys

import pytest

import torchyard
from torchyard.run.importing import extend_path


@pytest.fixture(autouse=True)
def _path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(sys, "path", ["/beside", "/installed"])


def test_the_root_and_src_come_last_so_that_they_shadow_nothing(tmp_path: Path) -> None:
    extend_path()
    assert sys.path == ["/beside", "/installed", str(tmp_path)]
    (tmp_path / "src").mkdir()
    extend_path()
    assert sys.path == ["/beside", "/installed", str(tmp_path), str(tmp_path / "src")]


def test_folders_of_pythonpath_come_first_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}/lib:/installed:{tmp_path}")
    extend_path()
    assert sys.path == [f"{tmp_path}/lib", str(tmp_path), "/beside", "/installed"]


def test_our_own_package_stays_the_last_where_an_environment_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = str(Path(torchyard.__file__).parent.parent)
    monkeypatch.setattr(sys, "path", ["/beside", own])
    extend_path()
    assert sys.path == ["/beside", str(tmp_path), own]
