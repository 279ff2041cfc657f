"""The commands of `Notes and labels` as they stand in docs/sweeps.md, against a service without a worker."""

from pathlib import Path
import sys

import pytest

from tests.api.service import TOKEN
from tests.databases import SQLiteDatabases
from tests.e2e.documented import blocks, environment_in, run_blocks
from tests.torchyard.cli.service import serving_team
from torchyard.client import Client

ROOT = Path(__file__).parents[3]


@pytest.mark.thorough
def test_the_commands_do_what_the_document_says(tmp_path: Path) -> None:
    section = (ROOT / "docs" / "sweeps.md").read_text().partition("\n## Notes and labels\n")[2]
    first, bulk = blocks(section, "sh")
    (program,) = blocks(section, "python")
    with serving_team(tmp_path, SQLiteDatabases(tmp_path)) as team:
        environment = {**environment_in(tmp_path), "TORCHYARD_URL": team.url, "TORCHYARD_TOKEN": TOKEN}
        said = run_blocks([first], tmp_path, environment)
        assert "labels     team=roads, dataset=v2" in said
        assert "diverges with `lr=1`" in said
        assert said.count("digits *") == 1
        told = run_blocks([bulk, f"{sys.executable} - <<'END'\n{program}END"], tmp_path, environment)
        assert "cancel: 1 job\ncancel: 1 job\narchive: 1 job\n" in told
        assert told.endswith("roads {<JobState.CANCELLED: 'cancelled'>: 1}\n")
        with Client(team.url, TOKEN) as client:
            (job,) = client.jobs.list(archived=True)
            assert client.get(job.id).view.notes.endswith("Looked at again.")
            assert job.starred and "reviewed" not in job.labels, "a filter finds archived jobs where it asks for them"
