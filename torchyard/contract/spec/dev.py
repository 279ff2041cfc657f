"""Jobs that run no program, to be worked in by a shell, a notebook or an editor."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from torchyard.contract.spec.spec import JobName
from torchyard.contract.wire.schema import Duration, Schema

WAITS = ("sleep", "infinity")
"""The program of such a job: it ends at once when the job is stopped."""

_KEPT = ("resources", "slurm", "stop_grace", "labels", "env", "keep")
_KEPT_OF_CONFIG = ("code", "mounts", "requirements", "python", "checkpoints", "left_out", "git")


class Dev(Schema):
    """Options of a job that runs no program and waits for you to work in it."""

    name: JobName | None = Field(default=None, description="name of the new job; null: the name of the old one")
    time_limit: Duration = Field(description="as in a job spec")
    idle_timeout: Duration = Field(description="as in a job spec")


def waiting_spec(script: Mapping[str, Any], dev: Dev) -> dict[str, Any]:
    """Returns the spec of a job that waits with the code, packages, variables and devices of a script's stored spec."""
    program, *args = WAITS
    config = {key: script["config"][key] for key in _KEPT_OF_CONFIG if key in script["config"]}
    return {
        "trainer": script["trainer"],
        "name": script["name"],
        **{key: script[key] for key in _KEPT if key in script},
        "config": {**config, "command": program, "args": args},
        **dev.model_dump(mode="json", exclude_none=True),
    }
