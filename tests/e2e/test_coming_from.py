"""What docs/coming-from.md says one types here, row by row, on a real service."""

from pathlib import Path
import re

import pytest

from tests.e2e.documented import ROOT, environment_in, run_blocks
from tests.e2e.service import Service

PAGE = (ROOT / "docs" / "coming-from.md").read_text()
SPEC = """
trainer: image-classification
name: digits
config: {data: {source: digits}, training: {epochs: 1, max_steps: 2}}
"""
PROGRAM = "import os\nprint('rank', os.environ.get('RANK'), flush=True)\n"


def commands_of(page: str) -> list[str]:
    """Returns the commands of the last column that have no star."""
    cells = [row.rstrip("| ").rpartition(" | ")[2] for row in page.splitlines() if row.startswith("| `")]
    found = [re.findall(r"`(torchyard [^`]+)`(?! \*)", cell) for cell in cells]
    return [command for commands in found for command in commands]


@pytest.mark.thorough
@pytest.mark.parametrize("databases", ["sqlite"], ids=[pytest.HIDDEN_PARAM], indirect=True, scope="session")
def test_each_command_does_here_what_the_other_system_does(tmp_path: Path, shared_service: Service) -> None:
    environment = environment_in(tmp_path)
    (tmp_path / "digits.yaml").write_text(SPEC)
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "train.sh").write_text("echo trained\n")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "train.py").write_text(PROGRAM)
    (tmp_path / ".torchyardignore").write_text("/config/\n*.pt\n")
    login = f"torchyard login {shared_service.server['url']} --token-stdin < {shared_service.data / 'token'}"
    commands = commands_of(PAGE)
    assert len(commands) > 30
    run_blocks([login, "torchyard submit digits.yaml --follow", *commands], tmp_path, environment)


def test_rows_with_a_star_are_left_out() -> None:
    page = "| a | b |\n| --- | --- |\n| `x` | `torchyard ps` |\n| `y` | `torchyard cancel a` * (now) |\n"
    assert commands_of(page) == ["torchyard ps"]
