"""Shells, programs and forwards while their job, the service or their reader is in trouble, by a whole service."""

from collections.abc import Iterator, Mapping
import os

import pytest

from tests.e2e.service import Service, running
from tests.torchyard.cli.terminal import Terminal, terminal
from torchyard.contract.jobs.views import JobView
from torchyard.contract.states import JobState

pytestmark = pytest.mark.thorough  # the parts of each are shown by tests of the worker, the API and the command line

FAILS_WHEN_TOLD = """
import os, pathlib, time
run = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"])
while not (run / "fail").exists(): time.sleep(0.02)
raise SystemExit("it has failed")
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service whose processes the tests may end."""
    with running(Service(tmp_path_factory.mktemp("own"), warm=False)) as service:
        yield service


@pytest.mark.parametrize("how", ["fails", "is paused", "is cancelled"])
def test_a_shell_whose_job_stops_says_so_at_once_and_what_became_of_it(own: Service, how: str) -> None:
    job = _running(own, "stops", FAILS_WHEN_TOLD)
    with terminal(["shell", job.id], _environment(own)) as shell:
        before = shell.modes()
        _say(shell, "echo $((6 * 7))", "42")
        if how == "fails":
            shell.type("touch $TORCHYARD_RUN_DIR/fail\r")
        else:
            own.client.jobs.pause(job.id) if how == "is paused" else own.client.jobs.cancel(job.id)
        code, said = (
            (1, "the job has ended: failed") if how == "fails" else (129, "the job stops, and this ends with it")
        )
        assert shell.wait() == code
        assert said in shell.screen
        assert "the connection is lost" not in shell.screen
        assert shell.modes() == before


def _running(service: Service, name: str, text: str) -> JobView:
    job = service.submit_script(name, text, max_restarts=0)
    return service.wait(job.id, JobState.RUNNING)


def _environment(service: Service) -> Mapping[str, str]:
    server = service.server
    return {
        **os.environ,
        "TORCHYARD_URL": server["url"],
        "TORCHYARD_TOKEN": server["token"],
        "PS1": "$ ",
        "TERM": "xterm",
    }


def _say(shell: Terminal, command: str, answer: str) -> None:
    """Has the shell run a command, and waits for its output."""
    shell.type(f"{command}\r")
    shell.wait_for(f"{command}\r\n")
    shell.wait_for(f"{answer}\r\n")
