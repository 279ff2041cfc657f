"""The commands of docs/sweeps.md, as they stand there, and the examples of sweeps."""

from pathlib import Path
import re
import shutil

import pytest

from tests import examples
from tests.e2e.documented import blocks, environment_in, run_blocks, running_by
from tests.servers import free_port
from torchyard.client import Client
from torchyard.contract.sweeps.spec import SweepState

DOCUMENT = (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text()


@pytest.mark.thorough
def test_the_commands_of_sweeps_do_what_is_documented(tmp_path: Path) -> None:
    text, environment = _section("Sweeps"), environment_in(tmp_path)
    shutil.copytree(examples.FOLDER, tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    (program,) = blocks(text, "python")
    (tmp_path / "program.py").write_text(program)
    (tmp_path / ".torchyardignore").write_text("*.pt\n*.log\n/config/\n")
    more = ["python program.py", "torchyard submit --follow examples/sweep.yaml", "python examples/sweep.py"]
    with running_by(f"torchyard up --port {free_port()} --cpu-slots 2", tmp_path, environment):
        said = run_blocks([*blocks(text, "sh"), *more], tmp_path, environment)
        with Client(data_dir=tmp_path / ".torchyard") as client:
            sweeps = {sweep.name: sweep for sweep in client.sweeps.list()}
            best = client.sweeps.get("lrs").best
    assert {sweep.state for sweep in sweeps.values()} == {SweepState.FINISHED}
    halved = sweeps.pop("halved").trials
    succeeded = {"digits-lr": 4, "seeds": 3, "lrs": 3, "parts": 3, "lr": 2, "digits-tpe": 8, "digits-sweep": 6}
    assert {name: sweep.trials.succeeded for name, sweep in sweeps.items()} == succeeded
    assert 1 <= halved.succeeded < halved.succeeded + halved.cancelled == 6
    assert best is not None and best.point == {"args.lr": 0.1}
    assert re.search(r"^best: trial \d+ with 0\.\d{4}, best\.pt$", said, re.MULTILINE)
    assert (tmp_path / "best.pt").stat().st_size > 0


@pytest.mark.thorough
def test_the_commands_of_schedules_do_what_is_documented(tmp_path: Path) -> None:
    environment = environment_in(tmp_path)
    with running_by(f"torchyard up --port {free_port()} --cpu-slots 1", tmp_path, environment):
        said = run_blocks(blocks(_section("Schedules"), "sh"), tmp_path, environment)
        with Client(data_dir=tmp_path / ".torchyard") as client:
            assert [*client.schedules.list()] == [*client.jobs.list()] == []
    for part in ("0 3 * * *  Europe/Berlin", "paused  next: never", "active  next: ", "deleted"):
        assert part in said


def _section(heading: str) -> str:
    """Returns the text below a heading of the second level."""
    return DOCUMENT.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
