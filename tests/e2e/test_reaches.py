"""Programs of a user inside the sandbox of a running job, by a whole service."""

from collections.abc import Generator
from contextlib import contextmanager
import os
import signal
from typing import Any

import httpx2
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from tests.api.reach_ends import DEADLINE_S, await_other, open_socket, send_proof
from tests.e2e.service import Service, until
from torchyard.contract.reach.frames import Frame, FrameReader, Kind
from torchyard.contract.reach.orders import Hello
from torchyard.contract.states import JobState

WAITS = "import time\nwhile True: time.sleep(0.05)\n"
PROGRAM = "import os,sys; sys.stdout.write(sys.stdin.read() + os.environ['RANK']); sys.exit(7)"


class Client:
    """The client of a reach, over one connection."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._reader = FrameReader()
        self.output = b""
        self.code: int | None = None
        self.opened = False
        self.refused: str | None = None
        """What came of the channel that was opened last."""

    def send(self, *frames: Frame) -> None:
        self._socket.send(b"".join(frame.encode() for frame in frames))

    def take(self) -> None:
        """Waits for a message, and takes its frames."""
        for frame in self._reader.feed(self._socket.recv(timeout=DEADLINE_S, decode=False)):
            assert frame.kind is not Kind.ERROR, frame.content
            if frame.kind is Kind.DATA and frame.channel == 0:
                self.output += frame.content
            elif frame.kind is Kind.EXIT:
                self.code = frame.number
            elif frame.kind is Kind.OPENED:
                self.opened = True
            elif frame.kind is Kind.REFUSED:
                self.refused = frame.content.decode()


def ask(service: Service, path: str, body: dict[str, Any] | None = None, *, token: str = "") -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {token or service.server['token']}"}
    answer = httpx2.post(f"{service.server['url']}{path}", json=body, headers=headers)
    assert answer.status_code == 201, answer.text
    return answer.json()


@contextmanager
def met(service: Service, opened: dict[str, Any], *, received: int = 0) -> Generator[Client]:
    """Yields the client of a meeting. `received`: bytes that it has of the program's output."""
    with open_socket(service.server["url"], opened, "client") as socket:
        await_other(socket, opened, send_proof(socket, opened, "client"))
        client = Client(socket)
        hello = Hello(received={"0": received} if received else {})
        client.send(Frame(Kind.HELLO, content=hello.to_json().encode()))
        yield client


def test_a_program_runs_in_the_sandbox_and_its_exit_code_comes_back(service: Service) -> None:
    job = service.submit_script("reached", WAITS)
    service.wait(job.id, JobState.RUNNING)
    opened = ask(service, f"/v1/jobs/{job.id}/reaches", {"kind": "program", "argv": ["python3", "-c", PROGRAM]})
    with met(service, opened) as client:
        client.send(Frame(Kind.DATA, 0, b"in the sandbox of rank "), Frame(Kind.EOF))
        while client.code is None:
            client.take()
        client.send(Frame(Kind.CLOSE))
    assert (client.output, client.code) == (b"in the sandbox of rank 0", 7)
    service.client.jobs.cancel(job.id)
    service.wait(job.id, JobState.CANCELLED)


@pytest.mark.thorough  # each half is shown by tests of the worker and of the API
def test_a_program_goes_on_over_the_death_of_the_worker_and_is_joined_again(service: Service) -> None:
    job = service.submit_script("joined", WAITS)
    service.wait(job.id, JobState.RUNNING)
    opened = ask(service, f"/v1/jobs/{job.id}/reaches", {"kind": "program", "argv": ["cat"]})
    with met(service, opened) as client:
        client.send(Frame(Kind.DATA, 0, b"before"))
        while client.output != b"before":
            client.take()
        os.kill(service.server["processes"]["worker"], signal.SIGKILL)
        with pytest.raises(ConnectionClosed):
            client.take()

    def join() -> dict[str, Any]:
        return ask(service, f"/v1/reaches/{opened['id']}/meetings")

    with met(service, until(join, what="it is joined again"), received=6) as client:
        client.send(Frame(Kind.DATA, 0, b" and after"), Frame(Kind.EOF))
        while client.code is None:
            client.take()
        client.send(Frame(Kind.CLOSE))
    assert (client.output, client.code) == (b" and after", 0)
    service.client.jobs.cancel(job.id)
    service.wait(job.id, JobState.CANCELLED)
