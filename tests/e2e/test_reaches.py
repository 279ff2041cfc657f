"""A user's program inside the sandbox of a running job, by a whole service."""

import httpx2

from tests.api.reach_ends import DEADLINE_S, await_other, open_socket, send_proof
from tests.e2e.service import Service
from torchyard.contract.reach.frames import Frame, FrameReader, Kind
from torchyard.contract.reach.orders import Hello
from torchyard.contract.states import JobState

WAITS = "import time\nwhile True: time.sleep(0.05)\n"


def test_a_program_runs_in_the_sandbox_and_its_exit_code_comes_back(service: Service) -> None:
    job = service.submit_script("reached", WAITS)
    service.wait(job.id, JobState.RUNNING)
    url, token = service.server["url"], service.server["token"]
    program = "import os,sys; sys.stdout.write(sys.stdin.read() + os.environ['RANK']); sys.exit(7)"
    body = {"kind": "program", "argv": ["python3", "-c", program]}
    asked = {"json": body, "headers": {"Authorization": f"Bearer {token}"}}
    answer = httpx2.post(f"{url}/v1/jobs/{job.id}/reaches", **asked)
    assert answer.status_code == 201, answer.text
    opened = answer.json()
    with open_socket(url, opened, "client") as client:
        await_other(client, opened, send_proof(client, opened, "client"))
        client.send(Frame(Kind.HELLO, content=Hello().to_json().encode()).encode())
        client.send(Frame(Kind.DATA, 0, b"in the sandbox of rank ").encode() + Frame(Kind.EOF, 0).encode())
        reader, output, code = FrameReader(), b"", None
        while code is None:
            message = client.recv(timeout=DEADLINE_S)
            assert isinstance(message, bytes)
            for frame in reader.feed(message):
                assert frame.kind is not Kind.ERROR, frame.content
                if frame.kind is Kind.DATA and frame.channel == 0:
                    output += frame.content
                if frame.kind is Kind.EXIT:
                    code = frame.number
        client.send(Frame(Kind.CLOSE).encode())
    assert (output, code) == (b"in the sandbox of rank 0", 7)
    service.client.jobs.cancel(job.id)
    service.wait(job.id, JobState.CANCELLED)
