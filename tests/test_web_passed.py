"""The page's checks are left out only where they passed for the very same files."""

from collections.abc import Callable
import importlib.util
from pathlib import Path
import shutil
import subprocess

import pytest

_spec = importlib.util.spec_from_file_location("passed", Path(__file__).parents[1] / "web/passed.py")
assert _spec and _spec.loader
passed = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(passed)
run_once: Callable[[Path, str, list[str]], int] = passed.run_once


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    for name in ("web/src/page.ts", "web/package-lock.json", "web/openapi.json", "tests/csv_cells.json", "Makefile"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("as it was")
    (tmp_path / "web/.gitignore").write_text("node_modules/\nopenapi.json\n")
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    return tmp_path


def _check(clone: Path, then: str = "") -> int:
    """Notes that it ran, outside of what is checked."""
    return run_once(clone, "check", ["sh", "-c", f"echo ran >> ran; {then}"])


def _runs(clone: Path) -> int:
    return (clone / "ran").read_text().count("ran")


def test_what_passed_runs_no_second_time(clone: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert [_check(clone), _check(clone)] == [0, 0]
    assert _runs(clone) == 1
    assert "check has passed for these files before" in capfd.readouterr().out


@pytest.mark.parametrize(
    "name",
    [
        "web/src/page.ts",
        "web/src/new.ts",
        "web/package-lock.json",
        "web/openapi.json",
        "tests/csv_cells.json",
        "Makefile",
    ],
)
def test_a_changed_file_has_it_run_again(clone: Path, name: str) -> None:
    _check(clone)
    (clone / name).write_text("changed")
    assert _check(clone) == 0
    assert _runs(clone) == 2


def test_a_file_that_is_removed_has_it_run_again(clone: Path) -> None:
    _check(clone)
    (clone / "web/src/page.ts").unlink()
    _check(clone)
    assert _runs(clone) == 2


def test_another_node_has_it_run_again(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _check(clone)
    monkeypatch.setattr(passed, "version", "{} of another".format)
    _check(clone)
    assert _runs(clone) == 2


def test_what_failed_runs_again_and_its_status_is_kept(clone: Path) -> None:
    assert [_check(clone, "exit 3"), _check(clone, "exit 3")] == [3, 3]
    assert _check(clone) == 0
    assert _runs(clone) == 3


def test_a_failure_forgets_an_earlier_pass(clone: Path) -> None:
    _check(clone)
    page = clone / "web/src/page.ts"
    page.write_text("wrong")
    _check(clone, "exit 1")
    page.write_text("as it was")
    _check(clone)
    assert _runs(clone) == 3


def test_a_change_while_it_runs_has_it_run_again(clone: Path) -> None:
    assert _check(clone, "echo edited > web/src/page.ts") == 0
    _check(clone)
    assert _runs(clone) == 2


def test_names_are_kept_apart(clone: Path) -> None:
    _check(clone)
    assert run_once(clone, "test", ["sh", "-c", "exit 4"]) == 4


def test_where_git_knows_nothing_it_always_runs(clone: Path) -> None:
    shutil.rmtree(clone / ".git")
    (clone / ".git").write_text("gitdir: nowhere")  # nor is a repository above it asked
    assert [_check(clone), _check(clone)] == [0, 0]
    assert _runs(clone) == 2
