"""The command line shows where the ranks of a running job are, by both launchers."""

import pytest

from tests.e2e.service import Service, until
from tests.torchyard.cli.invocation import environment, run_process
from torchyard.client import Client
from torchyard.contract.errors import Conflict, Forbidden
from torchyard.contract.states import JobState

SCRIPT = """
import os, time

def waits_for_data():
    print("waits", flush=True)
    while not os.path.exists("go"):
        time.sleep(0.02)

waits_for_data()
"""


@pytest.mark.parametrize("launcher", ["auto", pytest.param("torchrun", marks=pytest.mark.thorough)])
def test_stacks_shows_where_every_rank_of_a_running_job_is(service: Service, launcher: str) -> None:
    job = service.submit_script(
        f"stacks-{launcher}", SCRIPT, launcher=launcher, visibility="team", resources={"devices_per_node": 2}
    )
    until(lambda: len(list(service.client.jobs.logs(job.id))) >= 2, what="both ranks have printed")
    own = environment(service.server["url"], service.server["token"])
    done = run_process(["stacks", job.id, "--timeout", "60"], own)
    assert done.returncode == 0, done.stderr
    none, first, second = done.stdout.split("rank ")
    assert none == ""
    for rank, section in enumerate((first, second)):
        assert section.startswith(f"{rank}\n"), done.stdout
        assert "in waits_for_data" in section, done.stdout
    with _other_user(service, f"reader-{launcher}") as other:
        assert other.get(job.id).state is JobState.RUNNING
        with pytest.raises(Forbidden, match="only its owner and administrators"):
            other.jobs.stacks(job.id)
    (service.code / f"stacks-{launcher}" / "go").touch()
    service.wait(job.id, JobState.SUCCEEDED)
    with pytest.raises(Conflict, match="is succeeded"):
        service.client.jobs.stacks(job.id)
    assert [line.text for line in service.client.jobs.logs(job.id)] == ["waits", "waits"]


def _other_user(service: Service, name: str) -> Client:
    with service.client as admin:
        admin.users.add(name)
        return Client(url=service.server["url"], token=admin.tokens.make(user=name).token)
