"""Secrets reach the ranks of a job, by both launchers, and nothing else."""

import base64
from collections.abc import Iterator
import os
from pathlib import Path

import pytest

from tests.e2e.service import Service, until
from torchyard.contract.errors import InvalidSpec
from torchyard.contract.states import EndReason, JobState

VALUE = "correct-horse-battery-staple"
SCRIPT = """
import os, time
value = os.environ["API_KEY"]
print("it has", len(value), "characters:", value, flush=True)
while not os.path.exists("go"):
    time.sleep(0.02)
raise RuntimeError(f"{value} was refused")
"""


@pytest.fixture
def api_key(service: Service) -> Iterator[str]:
    """The name of a secret."""
    service.client.secrets.set("API_KEY", VALUE)
    yield "API_KEY"
    with service.client as client:
        for secret in client.secrets.list():
            client.secrets.delete(secret.name)


@pytest.mark.parametrize("launcher", ["auto", pytest.param("torchrun", marks=pytest.mark.thorough)])
def test_a_secret_is_in_the_ranks_and_nowhere_else(service: Service, api_key: str, launcher: str) -> None:
    job = service.submit_script(
        f"secret-{launcher}",
        SCRIPT,
        env={"API_KEY": {"secret": api_key}, "PLAIN": "text"},
        launcher=launcher,
        max_restarts=0,
        resources={"devices_per_node": 2},
    )
    assert job.spec.secrets == {"API_KEY": "API_KEY"}
    until(lambda: len(list(service.client.jobs.logs(job.id))) >= 2, what="both ranks have printed")
    assert files_with_the_value(service.data) == []
    assert [arguments for pid in service.processes() if (arguments := arguments_with_the_value(pid)) is not None] == []
    (service.code / f"secret-{launcher}" / "go").touch()
    done = service.wait(job.id, JobState.FAILED)
    assert done.error is not None
    assert done.error.message == "RuntimeError: *** was refused"
    assert "*** was refused" in (done.error.traceback or "")
    said = {line.text for line in service.client.jobs.logs(job.id) if line.stream == "stdout"}
    assert said == {f"it has {len(VALUE)} characters: ***"}
    assert VALUE not in done.model_dump_json()
    assert files_with_the_value(service.data) == []


def files_with_the_value(root: Path) -> list[Path]:
    """Returns the files that have the value, also in base64, except those that jobs themselves have written."""
    wanted = (VALUE.encode(), base64.b64encode(VALUE.encode()).rstrip(b"="))
    files = [Path(folder, name) for folder, _, names in os.walk(root) for name in names]
    own = (path for path in files if path.is_file() and "job" not in path.parts)
    return [path for path in own if any(part in content_of(path) for part in wanted)]


def arguments_with_the_value(pid: int) -> bytes | None:
    """Returns the arguments of a process if they or its variables have the value."""
    arguments = content_of(Path(f"/proc/{pid}/cmdline"))
    return arguments if VALUE.encode() in arguments + content_of(Path(f"/proc/{pid}/environ")) else None


def content_of(path: Path) -> bytes:
    """Returns nothing of a file or process that is gone: the service runs, and replaces and ends some."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def test_a_secret_that_the_owner_does_not_have_is_refused_or_ends_the_job(service: Service, api_key: str) -> None:
    with pytest.raises(InvalidSpec, match="not valid") as refused:
        service.submit_script("absent", SCRIPT, env={"API_KEY": {"secret": "ABSENT"}})
    assert [(error.field, "has no secret ABSENT" in error.message) for error in refused.value.errors] == [
        ("env.API_KEY", True)
    ]
    blocker = service.submit_script("blocker", "import time\ntime.sleep(600)\n", resources={"devices_per_node": 2})
    service.wait(blocker.id, JobState.RUNNING)
    job = service.submit_script("late", SCRIPT, env={"API_KEY": {"secret": api_key}})
    service.client.secrets.delete(api_key)
    service.client.jobs.cancel(blocker.id)
    done = service.wait(job.id, JobState.FAILED)
    assert done.error is not None
    assert done.error.code is EndReason.CONFIG_ERROR
    assert done.error.message == "env.API_KEY: admin has no secret API_KEY any more"
    assert done.attempt == 1
    service.client.secrets.set(api_key, VALUE)
