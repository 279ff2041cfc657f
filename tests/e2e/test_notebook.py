"""The real Jupyter of a job's own packages, at the address that `dev --notebook` prints."""

from collections.abc import Generator
from contextlib import chdir, contextmanager
from dataclasses import dataclass
import json
from pathlib import Path
import re
import signal
import socket
import subprocess
import sys
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from websockets.sync.client import connect

from tests.api.reach_ends import DEADLINE_S
from tests.e2e.service import Service, until
from tests.torchyard.cli.invocation import Started, environment, start_process
from torchyard.contract.states import JobState

REQUIREMENTS = "jupyterlab>=4,<5\n"
UNREACHABLE = re.compile(r"error sending request|Failed to fetch|dns error|Connection refused")
NAME = "notebook"
LISTENS = "import socket; listener = socket.create_server(('127.0.0.1', 0)); listener.getsockname()[1]"
"""So that it is seen from outside whether the kernel runs."""


@dataclass(frozen=True)
class Jupyter:
    """`url`: without its path. Who has the token may do all."""

    url: str
    token: str

    def ask(self, method: str, path: str) -> Any:
        answer = httpx2.request(method, self.url + path, headers={"Authorization": f"token {self.token}"})
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def result(self, kernel: str, code: str) -> str:
        """Has a kernel run the code. Returns the text of its value."""
        header = {"msg_id": "1", "msg_type": "execute_request", "session": "1", "username": "", "version": "5.3"}
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
        asked = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
        url = f"ws{self.url.removeprefix('http')}/api/kernels/{kernel}/channels?token={self.token}"
        with connect(url) as channels:
            channels.send(json.dumps(asked))
            while True:
                said = json.loads(channels.recv(timeout=DEADLINE_S))
                if said["msg_type"] in {"execute_result", "error"}:
                    return said["content"]["data"]["text/plain"] if "data" in said["content"] else str(said["content"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What `dev` copies: a folder that names Jupyter."""
    (tmp_path / "requirements.txt").write_text(REQUIREMENTS)
    command = [str(Path(sys.executable).with_name("uv")), "pip", "compile", "--quiet", "requirements.txt"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    if done.returncode and UNREACHABLE.search(done.stderr):
        pytest.skip(f"no package index is reachable: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return tmp_path


@pytest.mark.thorough
@pytest.mark.parametrize("databases", ["sqlite"], ids=[pytest.HIDDEN_PARAM], indirect=True, scope="session")
def test_a_kernel_of_jupyter_runs_in_the_job_and_its_end_leaves_the_job(service: Service, folder: Path) -> None:
    client = service.client
    with opened(service, folder) as started:
        line = started.stdout.readline()
        assert line, started.stderr.read()
        address = urlsplit(line.strip())
        jupyter = Jupyter(f"http://{address.netloc}", address.query.removeprefix("token="))
        page = httpx2.get(line.strip())
        assert (page.status_code, "JupyterLab" in page.text) == (200, True)
        assert httpx2.get(f"{jupyter.url}/api/kernels").status_code == 403, "without its token"
        kernel = jupyter.ask("POST", "/api/kernels")["id"]
        assert jupyter.result(kernel, "1+1") == "2"
        job = client.get(NAME)
        assert jupyter.result(kernel, "import os; os.environ['TORCHYARD_JOB_ID']") == repr(job.id)
        port = int(jupyter.result(kernel, LISTENS))
        assert _listens(port)
        started.program.send_signal(signal.SIGINT)
        assert started.program.wait(DEADLINE_S) == 0
    assert not _listens(address.port)
    until(lambda: not _listens(port), what="the kernel has ended")
    assert job.refresh().state is JobState.RUNNING
    job.cancel(now=True)
    assert job.wait().state is JobState.CANCELLED


@contextmanager
def opened(service: Service, folder: Path) -> Generator[Started]:
    words = ["dev", "--notebook", "--requirements", "requirements.txt", "--name", NAME]
    own = {**environment(service.server["url"], service.server["token"]), "HOME": str(folder)}
    with chdir(folder), start_process(words, own) as started:
        yield started


def _listens(port: int | None) -> bool:
    """The loopback of the job is that of this host."""
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0
