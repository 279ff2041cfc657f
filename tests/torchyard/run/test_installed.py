"""What a run says of the packages that it can import."""

from importlib.metadata import version
from pathlib import Path
import sys

import pytest

from torchyard.contract.attempts.events import Packages, parse_line
from torchyard.contract.attempts.rundir import Env, RunDir
from torchyard.run import Run
from torchyard.run.installed import installed


def made(folder: Path, *names: str) -> str:
    for name in names:
        (folder / name).mkdir(parents=True)
    return str(folder)


def test_each_package_has_the_version_that_is_imported() -> None:
    found = installed()
    assert {name: found[name] for name in ("numpy", "pydantic", "typing-extensions")} == {
        name: version(name) for name in ("numpy", "pydantic", "typing-extensions")
    }
    assert [*found] == sorted(found)


def test_the_first_of_two_counts_and_odd_names_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = made(
        tmp_path / "first", "A_b-1.0+cpu.dist-info", "c-2.egg-info", "d", "e-\u202e1.dist-info", "-1.dist-info"
    )
    second = made(tmp_path / "second", "a_b-0.9.dist-info", "f-1!3.dist-info")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "none"), first, second, second])
    assert installed() == {"a-b": "1.0+cpu", "c": "2", "f": "1!3"}


def test_more_than_is_recorded_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = [f"{'p' * 80}{number:04}-1.dist-info" for number in range(900)]
    monkeypatch.setattr(sys, "path", [made(tmp_path / "long", *long)])
    kept = installed()
    assert 0 < len(kept) < 900
    Packages(time=1, values=dict(kept))  # within the limits of a line


@pytest.mark.parametrize(("logs", "told"), [(True, 1), (False, 0)])
def test_a_run_tells_them_once_after_its_first_step(tmp_path: Path, *, logs: bool, told: int) -> None:
    folder = RunDir(tmp_path / "run")
    folder.create()
    run = Run({Env.RUN_DIR: str(folder.job)})
    run.message("begins")
    for step in range(1, 4 if logs else 1):
        run.log({"loss": 1.0}, step=step)
        run.flush()
    run.close()
    lines = [parse_line(line) for line in folder.events.read_text().splitlines()]
    packages = [line for line in lines if isinstance(line, Packages)]
    assert [line.values.get("numpy") for line in packages] == [version("numpy")] * told
