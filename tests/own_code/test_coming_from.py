"""The lines of docs/your-program.md that replace torchrun, and lines that replace sbatch, as one types them."""

from pathlib import Path
import re

import pytest

from tests.e2e.documented import ROOT, blocks, commands_in
from tests.e2e.service import Service
from tests.own_code.typed import torchyard

DOCUMENT = (ROOT / "docs" / "your-program.md").read_text()
PROGRAM = """
import os, sys
names = ("RANK", "WORLD_SIZE", "NCCL_DEBUG", "TORCHYARD_TRIAL")
print("found", __name__, *(f"{name}={os.environ[name]}" for name in names if name in os.environ), *sys.argv[1:])
"""
IN_PLACE_OF_SBATCH = """
torchyard run -d --name base --devices 2 --time-limit 2h train.py
torchyard run -d --name next --after base -- ./job.sh
torchyard run -d --name many --array 3 train.py
torchyard wait base next
torchyard ps -a; torchyard logs next
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "mypkg").mkdir(parents=True)
    for program in (folder / "train.py", folder / "mypkg" / "train.py"):
        program.write_text(PROGRAM)
    script = folder / "job.sh"
    script.write_text("#!/bin/bash\n#SBATCH --gpus=2\necho found job.sh\n")
    script.chmod(0o755)
    return folder


def run(lines: str, service: Service, folder: Path) -> str:
    """Runs the commands of some lines, one after the other. Returns their output."""
    return "".join(torchyard(service, folder, *words)[0] for words in commands_in(lines, "torchyard"))


def found(said: str) -> list[str]:
    return sorted(re.findall(r"found (?:__main__|job\.sh).*", said))


def test_the_lines_that_replace_torchrun_run_what_those_behind_them_do(folder: Path, service: Service) -> None:
    lines = blocks(DOCUMENT.partition("## Replace torchrun\n")[2], "sh")[0].splitlines()
    python, two, module, with_options, own = (found(run(line, service, folder)) for line in lines)
    ranks = [f"found __main__ RANK={rank} WORLD_SIZE=2" for rank in range(2)]
    assert python == ["found __main__ RANK=0 WORLD_SIZE=1 --epochs 3"]
    assert two == [f"{rank} --epochs 3" for rank in ranks]
    assert module == ranks
    assert with_options == [f"{rank} NCCL_DEBUG=INFO" for rank in ranks]
    assert own == ranks


def test_an_array_and_a_job_after_another_run_as_with_sbatch(folder: Path, service: Service) -> None:
    said = run(IN_PLACE_OF_SBATCH, service, folder)
    assert found(said) == ["found job.sh"]
    base, later = service.client.get("base"), service.client.get("next")
    assert found("\n".join(line.text for line in base.logs())) == [
        f"found __main__ RANK={rank} WORLD_SIZE=2" for rank in range(2)
    ]
    assert later.view.state == "succeeded"
    assert later.view.created_at >= base.view.created_at
    assert [each.job_id for each in later.view.after] == [base.id]
    (sweep,) = [each for each in service.client.sweeps.list() if each.name == "many"]
    service.client.sweeps.wait(sweep.id)
    trials = [service.client.get(trial.job_id) for trial in service.client.sweeps.trials(sweep.id) if trial.job_id]
    assert sorted(found("\n".join(line.text for job in trials for line in job.logs()))) == [
        f"found __main__ RANK=0 WORLD_SIZE=1 TORCHYARD_TRIAL={trial}" for trial in range(3)
    ]
