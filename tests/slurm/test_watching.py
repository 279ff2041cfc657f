"""What an owner sees of a job over several nodes while it runs, and who sees its secrets."""

import base64
from contextlib import suppress
import os
from pathlib import Path
import re

import pytest

from tests.slurm.service import PoolService
from torchyard.contract.states import JobState

pytestmark = pytest.mark.slurm

VALUE = "correct-horse-battery-staple"
KEY = re.compile(rb"SLURM_TORCHYARD_KEY=([0-9a-f]+)")
COORDINATOR = "worker.engines.slurm.batch"
WAITS = """
import os, pathlib, socket, time

def waits_for_data():
    print("rank", os.environ["RANK"], "on", socket.gethostname(), flush=True)
    while not pathlib.Path("go").exists():
        time.sleep(0.02)

waits_for_data()
"""
HAS_SECRET = """
import os, pathlib, time
value = os.environ["API_KEY"]
print("it has", len(value), "characters:", value, flush=True)
while not pathlib.Path("go").exists():
    time.sleep(0.02)
"""


def test_logs_devices_and_stacks_are_of_each_rank(service: PoolService) -> None:
    job = service.submit_script("watched", WAITS, devices=2)
    service.until(lambda: len(service.lines(job.id)) == 4, what="all ranks have printed")
    hosts = [service.lines(job.id, rank=rank)[0].split() for rank in range(4)]
    assert [(words[1], words[3]) for words in hosts] == [(str(rank), hosts[2 * (rank // 2)][3]) for rank in range(4)]
    assert hosts[0][3] != hosts[2][3]
    shown = service.wait(job.id, JobState.RUNNING)
    assert [(device.node, device.host) for device in shown.devices] == [
        (rank // 2, hosts[rank][3]) for rank in range(4)
    ]
    with service.client() as client:
        stacks = client.jobs.stacks(job.id, timeout=60)
    assert [rank.rank for rank in stacks.ranks] == [0, 1, 2, 3]
    assert all("in waits_for_data" in (rank.text or "") for rank in stacks.ranks)
    (service.code / "watched/go").touch()
    service.wait(job.id, JobState.SUCCEEDED)


def test_a_job_that_waits_in_slurm_says_why_and_for_whom_nothing_is_counted(service: PoolService) -> None:
    service.lab.run("scontrol", "update", "nodename=n2,n3", "state=drain", "reason=test")
    job = service.submit_script("waits", "", time_limit="2m")

    def reason() -> str | None:
        view = service.job(job.id)
        return view.status_reason.message if view.status_reason and "Slurm" in view.status_reason.message else None

    said = service.until(reason, what="Slurm's reason is shown")
    assert any(word in said for word in ("DRAINED", "Resources", "ReqNodeNotAvail")), said  # whichever came first
    assert service.job(job.id).state is JobState.STARTING
    service.lab.run("scontrol", "update", "nodename=n2,n3", "state=resume")
    service.wait(job.id, JobState.SUCCEEDED)


def test_a_secret_is_in_the_ranks_and_nowhere_else(service: PoolService) -> None:
    with service.client() as client:
        client.secrets.set("API_KEY", VALUE)
    job = service.submit_script("secret", HAS_SECRET, env={"API_KEY": {"secret": "API_KEY"}})
    service.until(lambda: len(service.lines(job.id)) == 2, what="both ranks have printed")
    assert files_with(service.lab.folder, VALUE.encode()) == []
    assert programs_with(service, VALUE.encode()) == []
    (key,) = {key for _, variables in programs(service) for key in re.findall(KEY, variables)}
    assert {path.relative_to(service.lab.folder).parts[0] for path in files_with(service.lab.folder, key)} <= {"state"}
    assert all(COORDINATOR in command for command in programs_with(service, key))
    (service.code / "secret/go").touch()
    service.wait(job.id, JobState.SUCCEEDED)
    assert set(service.lines(job.id)) == {f"it has {len(VALUE)} characters: ***"}
    assert files_with(service.lab.folder, VALUE.encode()) == []


def programs(service: PoolService) -> list[tuple[str, bytes]]:
    """Returns the command line and the variables of each process on the nodes."""
    found: list[tuple[str, bytes]] = []
    for number, _ in enumerate(service.lab.nodes, 1):
        for pid, command in service.lab.commands(number).items():
            with suppress(OSError):
                found.append((command, Path(f"/proc/{pid}/environ").read_bytes()))
    return found


def programs_with(service: PoolService, value: bytes) -> list[str]:
    """Returns the command lines of the processes that show the value."""
    return [command for command, variables in programs(service) if value in variables or value.decode() in command]


def files_with(root: Path, value: bytes) -> list[Path]:
    """Returns the files that have the value, also in base64, except those that jobs themselves have written."""
    wanted = (value, base64.b64encode(value).rstrip(b"="))
    files = [Path(folder, name) for folder, _, names in os.walk(root) for name in names]
    return [
        path
        for path in files
        if path.is_file() and "job" not in path.parts and any(part in path.read_bytes() for part in wanted)
    ]
