"""The variables of an environment, without running anything of it."""

from pathlib import Path

import pytest

from tests.approved import Approved
from tests.venvs import make_venv
from tests.worker.environments.fixture import make_conda, set_script, set_variables
from worker.environments.activation import activate, assignments
from worker.environments.environment import read

KNOWN = {"CONDA_PREFIX": "/envs/ml", "HOME": "/home/a"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("export A=b", {"A": "b"}),
        ("#!/bin/sh\n\n# a word\nA='$HOME b'\nexport A\n", {"A": "$HOME b"}),
        ('export A="$CONDA_PREFIX/share" ;\nexport B=${A}/more', {"A": "/envs/ml/share", "B": "/envs/ml/share/more"}),
        ("export A=", {"A": ""}),
        ("export A=$UNKNOWN/x", {"A": "/x"}),
        ("export A=`id`", None),
        ("export A=$(id)", None),
        ("export A=1; touch /tmp/x", None),
        ("if true; then\nexport A=1\nfi", None),
        ("export A=${B:-c}", None),
        ("source other.sh", None),
        ("export A=1\nexport A", {"A": "1"}),
        ("export A=${B", None),
        ("export A='\0'", None),
        pytest.param('export A="' + "$aaaa" * 2000, None, id="no end of many variables"),
        pytest.param("A=aaaaaaaa\n" + 'A="$A$A"\n' * 60, None, id="each line doubles"),
        pytest.param("A=" + "a" * 8000 + "\n" + "".join(f"B{n}=$A\n" for n in range(100)), None, id="many long ones"),
    ],
)
def test_a_script_that_only_sets_variables_is_understood(text: str, found: dict[str, str] | None) -> None:
    assert assignments(text, KNOWN) == found


def test_conda_environments_have_their_variables_and_say_what_is_left_out(tmp_path: Path, approved: Approved) -> None:
    folder = make_conda(tmp_path / "ml")
    set_script(folder, "a.sh", 'export GDAL_DATA="$CONDA_PREFIX/share/gdal"\n')
    set_script(folder, "b.sh", "touch /tmp/ran\n")
    set_script(folder, "c.sh", "export RANK=3\nexport LD_LIBRARY_PATH=$CONDA_PREFIX/lib\nexport PATH=/evil\n")
    set_variables(folder, {"MY_TOKEN": "of-the-env", "MASTER_ADDR": "elsewhere"})
    found = activate(read(folder), path="/usr/bin")
    assert found.variables == {
        "PATH": f"{folder}/bin:/usr/bin",
        "CONDA_PREFIX": str(folder),
        "CONDA_DEFAULT_ENV": "ml",
        "CONDA_SHLVL": "1",
        "GDAL_DATA": f"{folder}/share/gdal",
        "LD_LIBRARY_PATH": f"{folder}/lib",
        "MY_TOKEN": "of-the-env",
    }
    assert "\n".join(found.notes) == approved("notes")


@pytest.mark.parametrize("values", [{"": "a"}, {"A=B": "a"}, {"A": "\0"}, {"A": "\ud800"}, {"A": "a" * 40_000}])
def test_variables_that_no_program_can_have_are_left_out(tmp_path: Path, values: dict[str, str]) -> None:
    folder = make_conda(tmp_path / "ml")
    set_variables(folder, values)
    found = activate(read(folder), path="/usr/bin")
    assert {*found.variables} == {"PATH", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "CONDA_SHLVL"}
    assert len(found.notes) == 1


def test_a_variable_that_conda_has_unset_is_not_set(tmp_path: Path) -> None:
    folder = make_conda(tmp_path / "ml")
    set_variables(folder, {"GONE": "***unset***", "HERE": "1"})
    found = activate(read(folder), path="/usr/bin")
    assert ("GONE" in found.variables, found.variables["HERE"], found.notes) == (False, "1", [])


def test_a_venv_has_its_name_and_its_programs(tmp_path: Path) -> None:
    folder = make_venv(tmp_path / "own")
    found = activate(read(folder), path="/usr/bin")
    assert found.variables == {"PATH": f"{folder}/bin:/usr/bin", "VIRTUAL_ENV": str(folder)}
