"""Programs in an environment that a job names: what they find there, and what they cannot change."""

import os
from pathlib import Path
import sys

import pytest

from tests.venvs import make_venv
from tests.worker.attempt import Attempt
from tests.worker.environments.fixture import MINOR
from torchyard.contract.cluster.devices import EnvironmentReport
from torchyard.contract.states import EndReason
from worker.attempts.prepare import named_environment
from worker.engines.base import NamedEnvironment
from worker.environments.environment import read

TELLS = """
import importlib.util, os, sys, sysconfig
import torchyard, torchyard.run
print(sys.prefix)
print(os.environ.get("VIRTUAL_ENV"), os.environ["PATH"].split(os.pathsep)[0], "LD_LIBRARY_PATH" in os.environ)
print([name for name in ("worker", "trainer", "pydantic", "torch") if importlib.util.find_spec(name)])
print(torchyard.__file__, sys.path[-1], sys.flags.safe_path)
for folder in (sys.prefix, sysconfig.get_path("purelib"), sys.base_prefix, sys.argv[1]):
    try:
        open(os.path.join(folder, "poison"), "w").close()
        print("wrote to", folder)
    except OSError:
        pass
"""


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    venv = make_venv(tmp_path / "own")
    site = venv / "lib" / f"python{MINOR}" / "site-packages"
    (site / "torchyard").mkdir()  # an older one, which no rank must take
    (site / "torchyard" / "__init__.py").write_text("raise ImportError('of the environment')")
    return venv


@pytest.fixture
def named(attempt: Attempt, venv: Path, monkeypatch: pytest.MonkeyPatch) -> NamedEnvironment:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/libraries/of/the/service")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    found, _ = named_environment.enter(read(venv), attempt.run, [], environ=os.environ)
    assert str(Path(sys.executable).parent) not in found.variables["PATH"].split(os.pathsep)
    return found


@pytest.mark.parametrize(
    "program",
    [
        {},
        pytest.param({"command": "python", "args": ["train.py"]}, marks=pytest.mark.thorough),
        pytest.param({"module": "train"}, marks=pytest.mark.thorough),
    ],
)
def test_a_program_has_the_environment_and_cannot_write_it(
    attempt: Attempt, named: NamedEnvironment, venv: Path, program: dict[str, str]
) -> None:
    attempt.launcher, attempt.stand_in = "torchrun", True
    code = attempt.add_bundle({"train.py": TELLS})
    arguments = [*program.get("args", []), str(attempt.run.run_package)]
    config = {"code": code, **program, "args": arguments}
    attempt.start_spec({"trainer": "script", "config": config}, world_size=1, named=named)
    assert attempt.report().reason is EndReason.COMPLETED, attempt.log("rank-0", "stderr")
    found = attempt.log("rank-0", "stdout").splitlines()
    package = attempt.run.run_package
    last = str(package) if "command" not in program else found[3].split()[1]
    assert found == [
        str(venv),
        f"{venv} {venv / 'bin'} False",
        "[]",
        f"{package / 'torchyard' / '__init__.py'} {last} False",
    ]


def test_a_link_that_takes_the_place_of_an_environment_opens_nothing(
    attempt: Attempt, named: NamedEnvironment, venv: Path
) -> None:
    venv.rename(venv.with_name("other"))
    venv.symlink_to("other")
    code = attempt.add_bundle({"train.py": "print('ran')"})
    config = {"code": code, "command": "python", "args": ["train.py"]}
    attempt.start_spec({"trainer": "script", "config": config}, world_size=1, named=named)
    report = attempt.report()
    assert report.reason is EndReason.LAUNCH_FAILED
    assert "it is a link" in report.message


def test_a_change_between_two_attempts_is_said(attempt: Attempt, venv: Path) -> None:
    from store.attempts.facts import EarlierAttempt

    now = read(venv)
    before = EnvironmentReport.from_dict({**now.report().to_dict(), "torch": "2.1.2"})
    earlier = [
        EarlierAttempt(number=number, started_at=1, ran=True, offsets={}, environment=environment)
        for number, environment in ((1, before.to_dict()), (2, None))
    ]
    _, said = named_environment.enter(now, attempt.run, earlier, environ={"PATH": "/usr/bin"})
    assert [level for level, _ in said] == ["info", "warning"]
    assert said[1][1] == "the environment own has changed since attempt 1: torch 2.1.2 became none"
