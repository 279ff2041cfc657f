"""The commands of docs/operating/team.md, as they stand there but for the port."""

from pathlib import Path
import re

import pytest

from tests.e2e.documented import blocks, environment_in, run_blocks, running_by
from tests.servers import free_port
from torchyard.client import Client

DOCUMENT = Path(__file__).parents[2] / "docs" / "operating" / "team.md"


@pytest.mark.thorough
def test_the_first_hour_of_a_team_goes_as_documented(tmp_path: Path) -> None:
    up, *steps = _commands(port=free_port())
    environment = environment_in(tmp_path)
    with running_by(up, tmp_path, environment):
        said = run_blocks(steps, tmp_path, environment)
        with Client(data_dir=tmp_path / ".torchyard") as client:
            disabled = {user.name for user in client.users.list() if user.disabled_at is not None}
    assert "a job of alice" in said
    for owner in ("alice", "bob"):
        assert re.search(rf"^owner +{owner}\nvisibility +team$", said, re.MULTILINE)
    assert disabled == {"bob"}
    audit = said.rpartition("TIME ")[2]
    for entry in ("admin +user.disable", "admin +quota.set", "ada +worker.drain", "alice +job.submit"):
        assert re.search(rf" {entry} ", audit), audit


def _commands(*, port: int) -> list[str]:
    """Returns the page's blocks of commands, for a service on this port."""
    return [block.replace("8000", str(port)) for block in blocks(DOCUMENT.read_text(), "sh")]
