"""Jobs that run after others, by the commands of docs/sweeps.md."""

from pathlib import Path
import re

import pytest

from tests.e2e.documented import blocks, environment_in, run_blocks
from tests.e2e.service import Service
from torchyard.contract.states import JobState

DOCUMENT = (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text()
AFTER = DOCUMENT.partition("\n## Jobs after other jobs\n")[2].partition("\n## ")[0]


@pytest.mark.thorough
def test_a_chain_starts_from_what_its_first_job_has_saved(tmp_path: Path, service: Service) -> None:
    environment = environment_in(tmp_path) | {
        "TORCHYARD_URL": service.server["url"],
        "TORCHYARD_TOKEN": service.server["token"],
    }
    (commands,) = blocks(AFTER, "sh")
    said = run_blocks([commands], tmp_path, environment)
    first, second, third = re.findall(r"^job_[0-9a-f]{32}$", said, re.MULTILINE)
    assert "waits for pretrain" in said or service.client.get(first).view.state.terminal
    done = service.wait(second, JobState.SUCCEEDED)
    assert done.init_from is not None
    assert done.init_from.job_id == first
    assert [(each.name, each.state) for each in done.after] == [("pretrain", JobState.SUCCEEDED)]
    failed = service.wait(third, JobState.FAILED)
    assert failed.error is not None
    assert failed.error.code == "dependency_failed"
    assert failed.status_reason.message == "not needed: pretrain succeeded"
