"""`make test-thorough` finds the Pythons of this machine that run."""

from pathlib import Path
import sys

import pytest

from tests import pythons

SHIM = "#!/bin/sh\necho 'pyenv: command not found' >&2\nexit 127\n"
HERE = "{}.{}".format(*sys.version_info)


def test_a_shim_that_does_not_run_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shim, real = tmp_path / "shims" / f"python{HERE}", tmp_path / "versions" / f"{HERE}.7" / "bin" / f"python{HERE}"
    for path in (shim, real):
        path.parent.mkdir(parents=True)
    shim.write_text(SHIM)
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(shim.parent))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert pythons.find(HERE) is None
    real.symlink_to(sys.executable)
    assert pythons.find(HERE) == real


def test_a_python_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pythons, "SUPPORTED", (HERE, "3.99"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert pythons.main(()) == 0
    assert capsys.readouterr().err.startswith("Python 3.99 was not found")


def test_the_supported_ones_are_those_of_the_distributions() -> None:
    first, last = pythons.SUPPORTED[0], pythons.SUPPORTED[-1].partition(".")[2]
    wanted = f'requires-python = ">={first},<3.{int(last) + 1}"'
    for file in ("pyproject.toml", "deploy/server/pyproject.toml"):
        assert wanted in (pythons.ROOT / file).read_text()
