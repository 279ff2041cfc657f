"""Changes that make a warm process outdated: of its code, the installed packages, and its environment."""

from pathlib import Path

import pytest

from worker.engines.local.warm.fingerprint import fingerprint

ENV = {"PATH": "/bin"}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a module in each package."""
    for name in ("torchyard/contract/wire/schema.py", "worker/engines/base.py", "trainer/recipes/text.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("x = 1")
    (tmp_path / "requirements.lock").touch()
    monkeypatch.setattr("worker.engines.local.warm.fingerprint.ROOT", tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["worker/engines/base.py", "trainer/recipes/new.py", "requirements.lock"])
def test_a_changed_or_new_module_or_lock_file_changes_the_fingerprint(root: Path, name: str) -> None:
    before = fingerprint(ENV)
    (root / name).write_text("x = 22")
    assert fingerprint(ENV) != before


def test_a_removed_module_changes_the_fingerprint(root: Path) -> None:
    before = fingerprint(ENV)
    (root / "torchyard/contract/wire/schema.py").unlink()
    assert fingerprint(ENV) != before


@pytest.mark.parametrize("name", ["worker/notes.txt", "worker/__pycache__/base.py", "tests/test_x.py", "store/rows.py"])
def test_a_file_that_is_not_imported_does_not_change_the_fingerprint(root: Path, name: str) -> None:
    before = fingerprint(ENV)
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).touch()
    assert fingerprint(ENV) == before


def test_the_environment_and_the_installed_packages_change_the_fingerprint(
    root: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = fingerprint(ENV)
    assert fingerprint({**ENV, "TZ": "UTC"}) != before
    packages = tmp_path_factory.mktemp("packages")
    monkeypatch.syspath_prepend(packages)
    installed = fingerprint(ENV)
    assert installed != before
    (packages / "__pycache__").mkdir()
    assert fingerprint(ENV) == installed, "bytecode does not change it"
    (packages / "new-1.0.dist-info").mkdir()
    assert fingerprint(ENV) != installed
