"""Shells, programs and forwards while their job, the service or their reader is in trouble, by a whole service."""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
import hashlib
import os
from pathlib import Path
import re
import signal
import socket

import pytest

from tests.e2e.service import Service, newest_step, running, until
from tests.e2e.test_reaches import ask
from tests.torchyard.cli.invocation import run_process, start_process
from tests.torchyard.cli.terminal import Terminal, terminal
from torchyard.contract.errors import Conflict
from torchyard.contract.jobs.views import JobView
from torchyard.contract.states import JobState

pytestmark = pytest.mark.thorough  # the parts of each are shown by tests of the worker, the API and the command line

FAILS_WHEN_TOLD = """
import os, pathlib, time
run = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"])
while not (run / "fail").exists(): time.sleep(0.02)
raise SystemExit("it has failed")
"""

SERVES = """
import os, pathlib, socket, threading, time
import torchyard

def serve(connection):
    with connection:
        while asked := connection.recv(100):
            connection.sendall(BLOCK * 1000 if asked == b"much" else asked)

def serve_all():
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

BLOCK = bytes(range(250)) * 800
listener = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=serve_all, daemon=True).start()
(pathlib.Path(os.environ["TORCHYARD_RUN_DIR"]) / "port").write_text(f"{listener.getsockname()[1]}\\n")
run = torchyard.init()
for step in range(10**6):
    run.log({"loss": 1 / (step + 1)}, step=step)
    print("step", step, flush=True)
    time.sleep(0.02)
"""
WRITES = """
import os, pathlib
counted = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"], "counted")
for first in range(0, 10**9, 1000):
    os.write(1, b"".join(b"line %d\\n" % number for number in range(first, first + 1000)))
    counted.write_text(str(first + 1000))
"""
ENDS = r"the job (has ended: (failed|cancelled)|was stopped: (paused|queued)|stops, and)|attempt 1 has ended"
MUCH = 200_000_000
MOST_LINES = 1_000_000
"""About 11 MB: what all windows, pipes and buffers on the way hold is less."""
MOST_GROWTH = 64 << 20
"""Bytes by which the service may grow while nobody reads."""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service whose processes the tests may end."""
    with running(Service(tmp_path_factory.mktemp("own"), warm=False)) as service:
        yield service


@pytest.fixture
def run(own: Service) -> Iterator[Callable[[str], JobView]]:
    """Runs a script as a job, which ends with the test."""
    jobs: list[JobView] = []

    def start(text: str) -> JobView:
        jobs.append(own.submit_script("troubled", text, max_restarts=0, preemptible=True))
        return own.wait(jobs[0].id, JobState.RUNNING)

    yield start
    for job in jobs:
        with suppress(Conflict):  # it has ended
            own.client.jobs.cancel(job.id, now=True)
        own.wait(job.id)


@pytest.mark.parametrize("how", ["fails", "is preempted", "is paused", "is cancelled"])
def test_a_shell_whose_job_stops_says_so_at_once_and_what_became_of_it(
    own: Service, run: Callable[[str], JobView], how: str
) -> None:
    job = run(FAILS_WHEN_TOLD)
    with terminal(["shell", job.id], _environment(own)) as shell:
        before = shell.modes()
        _say(shell, "echo $((6 * 7))", "42")
        if how == "fails":
            shell.type("touch $TORCHYARD_RUN_DIR/fail\r")
        else:
            own.client.jobs.pause(job.id) if how == "is paused" else own.client.jobs.cancel(job.id)
        code = shell.wait()  # the shell's own where it has ended before the attempt, which hangs it up
        assert code in ({1} if how == "fails" else {1, 128 + signal.SIGHUP})
        assert re.search(ENDS, shell.screen)
        assert "the connection is lost" not in shell.screen
        assert shell.modes() == before


def test_a_shell_and_a_forward_lose_nothing_when_the_api_is_killed(own: Service, run: Callable[[str], JobView]) -> None:
    job = run(SERVES)
    port = _port(own, job)
    with _forwarding(own, job, port) as address, socket.create_connection(address) as connection:
        assert _echoed(connection, b"before") == b"before"
        with terminal(["shell", job.id], _environment(own)) as shell:
            shell.type("stty -echo; PS1=; kept=7; echo rea''dy\r")
            shell.wait_for("ready")
            shell.type("for i in $(seq 300); do echo line $i.; sleep 0.01; done; echo d''one\r")
            shell.wait_for("line 20.")
            os.kill(own.server["processes"]["api"], signal.SIGKILL)
            shell.wait_for("connected again")
            shell.type("echo $kept; exit 5\r")
            assert shell.wait() == 5
        assert _echoed(connection, b"after") == b"after"
    shown = shell.screen.replace("\r\nthe connection is lost: trying again\r\n", "").replace(
        "\r\nconnected again\r\n", ""
    )
    assert [int(number) for number in re.findall(r"line (\d+)\.\r\n", shown)] == [*range(1, 301)]
    assert "7\r\n" in shown.partition("done\r\n")[2]


def test_a_slow_reader_holds_its_program_back_and_nothing_else(own: Service, run: Callable[[str], JobView]) -> None:
    job = run(SERVES)
    _port(own, job)
    counted, before = _run_of(own, job) / "counted", _memory(own)
    with start_process(["exec", job.id, "--", "python3", "-c", WRITES], _environment(own)) as reading:
        assert reading.stdout.readline() == "line 0\n"
        until(counted.exists, what="it writes")
        _wait_for_steps(own, job, more=200)
        written, lines = int(counted.read_text()), _lines(own, job)
        _wait_for_steps(own, job, more=100)
        assert int(counted.read_text()) == written < MOST_LINES, "it is held back"
        assert _lines(own, job) > lines, "the log of the job goes on"
        assert _memory(own) - before < MOST_GROWTH
        assert [reading.stdout.readline() for _ in range(written)] == [
            f"line {number}\n" for number in range(1, written + 1)
        ]


def test_much_comes_through_a_forward_while_metrics_stream(own: Service, run: Callable[[str], JobView]) -> None:
    job = run(SERVES)
    first = newest_step(own, job.id) if _port(own, job) else 0
    with _forwarding(own, job, _port(own, job)) as address, socket.create_connection(address) as connection:
        connection.sendall(b"much")
        connection.shutdown(socket.SHUT_WR)
        found, size = hashlib.sha256(), 0
        while content := connection.recv(1 << 20):
            found.update(content)
            size += len(content)
        last = newest_step(own, job.id)
    assert size == MUCH
    assert found.digest() == hashlib.sha256(bytes(range(250)) * (MUCH // 250)).digest()
    assert last > first


def test_one_shell_too_many_is_refused_with_words(own: Service, run: Callable[[str], JobView]) -> None:
    job = run(SERVES)
    for _ in range(100):
        ask(own, f"/v1/jobs/{job.id}/reaches", {"kind": "program", "terminal": {}})
    refused = run_process(["exec", job.id, "--", "true"], _environment(own))
    assert refused.returncode == 1
    assert f"job {job.id} has 100 open connections to jobs; the maximum is 100: close some first" in refused.stderr


@contextmanager
def _forwarding(service: Service, job: JobView, port: int) -> Generator[tuple[str, int]]:
    """Yields the address of this machine that leads to a port of the job."""
    with start_process(["forward", job.id, str(port)], _environment(service)) as started:
        host, _, local = started.stdout.readline().split()[0].removeprefix("http://").partition(":")
        yield host, int(local)


def _echoed(connection: socket.socket, content: bytes) -> bytes:
    connection.sendall(content)
    return connection.recv(len(content), socket.MSG_WAITALL)


def _run_of(service: Service, job: JobView) -> Path:
    return service.data / "runs" / job.id / "1" / "job"


def _port(service: Service, job: JobView) -> int:
    """Waits until the job listens and has logged a step."""
    path = _run_of(service, job) / "port"
    until(lambda: path.exists() and path.read_text().endswith("\n"), what="the job listens")
    until(lambda: service.client.jobs.metrics(job.id).data or None, what="its first step")
    return int(path.read_text())


def _wait_for_steps(service: Service, job: JobView, *, more: int) -> None:
    last = newest_step(service, job.id) + more
    until(lambda: newest_step(service, job.id) >= last, what=f"{more} steps")


def _lines(service: Service, job: JobView) -> int:
    (newest,) = service.client.jobs.logs(job.id, tail=1)
    return newest.line


def _memory(service: Service) -> int:
    """Returns how many bytes the processes of the service hold that bytes of a reach pass through."""
    processes = service.server["processes"]
    status = [Path(f"/proc/{processes[name]}/status").read_text() for name in ("api", "worker")]
    return sum(int(found) << 10 for text in status for found in re.findall(r"VmRSS:\s+(\d+) kB", text))


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
