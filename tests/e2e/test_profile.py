"""A job profiles some of its steps: a recipe, and a script of one's own."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.service import Service
from torchyard.contract.states import JobState

SCRIPT = """
import torch
import torchyard

run = torchyard.init()
weights = torch.ones(32, 32)
for step in range(1, 12):
    weights = torch.mm(weights, weights).tanh()
    run.log({"norm": weights.norm()}, step=step)
"""


def profiled(service: Service, job_id: str, to: Path) -> tuple[str, list[str]]:
    """Waits for the end of the job. Returns its message about the profile, and the steps in its trace."""
    service.wait(job_id, JobState.SUCCEEDED)
    (artifact,) = service.client.jobs.artifacts(job_id)
    path = service.client.jobs.download_artifact(job_id, artifact.path, to=to)
    events: list[dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    names = {str(event.get("name")) for event in events}
    told = [str(event.data.get("text", "")) for event in service.client.jobs.events(job_id)]
    (message,) = [text for text in told if "profile" in text]
    assert message.endswith(f"the trace is the artifact {artifact.path}")
    assert artifact.path.startswith("profile/steps-")
    return message, sorted(name for name in names if name.startswith("ProfilerStep#"))


@pytest.mark.parametrize("launcher", ["warm", pytest.param("torchrun", marks=pytest.mark.thorough)])
def test_a_recipe_and_a_script_profile_the_steps_that_were_asked_for(
    service: Service, tmp_path: Path, launcher: str
) -> None:
    recipe = service.client.submit(
        {
            "trainer": "image-classification",
            "resources": {"devices_per_node": 2},
            "launcher": launcher,
            "config": {"data": {"source": "digits"}, "training": {"max_steps": 9}},
            "profile": {"start": 5, "steps": 2},
        }
    )
    message, steps = profiled(service, recipe.id, tmp_path / "recipe.json.gz")
    assert message.startswith("profile of steps 6 to 7: of the CPUs' time in operations ")
    assert "aten::" in message
    assert steps == ["ProfilerStep#6", "ProfilerStep#7"]
    script = service.submit_script("profiled", SCRIPT, launcher=launcher, profile={"start": 7, "steps": 3})
    message, steps = profiled(service, script.id, tmp_path / "script.json.gz")
    assert message.startswith("profile of steps 8 to 10: ")
    assert steps == ["ProfilerStep#10", "ProfilerStep#8", "ProfilerStep#9"]
