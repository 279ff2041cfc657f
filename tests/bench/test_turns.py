"""Programs that train in turns; here stand-ins that print what ranks print."""

from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
import subprocess
import sys

import pytest

from bench.turns import Measured, Program, TrainingSettings, check_alike, take_turns

RANK = """
import os, sys
name, norm, turns, told = sys.argv[1], sys.argv[2], int(sys.argv[3]), open(sys.argv[4], "a")
print("something else", flush=True)
print("ready 0", flush=True)
os.read(0, 1)
for turn in range(turns):
    print(name, turn, file=told, flush=True)
    print("measured", 10 + turn, flush=True)
    os.read(0, 1)
print("norm", norm, flush=True)
"""


@contextmanager
def programs(folder: Path, norms: Mapping[str, str], *, turns: int) -> Generator[list[Program]]:
    with ExitStack() as stack:
        found: list[Program] = []
        for name, norm in norms.items():
            command = [sys.executable, "-c", RANK, name, norm, str(turns), str(folder / "told")]
            process = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
            log = folder / f"{name}.log"
            log.write_text(f"the last words of {name}\n")
            found.append(Program(name, 1, process, log))
        yield found


def test_programs_take_turns_and_the_first_turn_does_not_count(tmp_path: Path) -> None:
    with programs(tmp_path, {"a": "5.0", "b": "5.0"}, turns=5) as both:
        measured = Measured([11.0, 12.0], operations=13.0, calls=14.0)
        assert take_turns(both, turns=2) == {"a": measured, "b": measured}
    told = (tmp_path / "told").read_text().split()
    assert " ".join(told) == "a 0 b 0 b 1 a 1 a 2 b 2 b 3 a 3 a 4 b 4"


def test_programs_with_different_models_are_not_compared(tmp_path: Path) -> None:
    with (
        programs(tmp_path, {"a": "5.0", "b": "5.1"}, turns=4) as both,
        pytest.raises(SystemExit, match="different weights"),
    ):
        take_turns(both, turns=1)


def test_a_program_that_ends_too_early_shows_its_log(tmp_path: Path) -> None:
    with programs(tmp_path, {"a": "5.0"}, turns=1) as one, pytest.raises(SystemExit, match="the last words of a"):
        take_turns(one, turns=2)


@pytest.mark.parametrize("norm", [5.01, float("nan")])
def test_different_weights_are_reported(norm: float) -> None:
    check_alike({"a": 5.0, "b": 5.001})
    with pytest.raises(SystemExit, match="trained different weights"):
        check_alike({"a": 5.0, "b": norm})


def test_the_data_suffices_for_all_turns(tmp_path: Path) -> None:
    settings = TrainingSettings("small_cnn", batch=4, settling=2, steps=8, log_every=10, turns=3, processes=2)
    assert settings.samples == (6 * 10 - 5) * 4 * 2
    settings.write(tmp_path / "settings.json")
    assert TrainingSettings.read(str(tmp_path / "settings.json")) == settings
