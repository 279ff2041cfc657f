"""Connections to what the processes of a running attempt listen on."""

from collections.abc import Callable, Generator
from pathlib import Path
import socket

import pytest

from tests.worker.attempt import Attempt
from tests.worker.programs import READY
from tests.worker.reaching import Reached
from torchyard.contract.reach.channels import WINDOW

START = "warm"
Reach = Callable[[], Reached]
ECHOES = (
    READY
    + """
import socket, threading
def echo(connection):
    while content := connection.recv(1 << 16): connection.sendall(content)
    connection.sendall(b"bye")
    connection.close()
def serve(listener):
    while True: threading.Thread(target=echo, args=listener.accept()[:1]).start()
ipv4, ipv6 = socket.create_server(("127.0.0.1", 0)), socket.create_server(("::1", 0), family=socket.AF_INET6)
unix = socket.socket(socket.AF_UNIX); unix.bind(str(root / "echo")); unix.listen()
for listener in (ipv4, ipv6, unix): threading.Thread(target=serve, args=(listener,)).start()
(root / "ports").write_text(f"{ipv4.getsockname()[1]} {ipv6.getsockname()[1]}")
ready()
"""
)


@pytest.fixture
def ports(attempt: Attempt) -> tuple[int, int]:
    """Those of an attempt that echoes what is sent to it."""
    attempt.start(ECHOES)
    attempt.wait_for_file("ready-0")
    ipv4, ipv6 = map(int, (attempt.run.job / "ports").read_text().split())
    return ipv4, ipv6


@pytest.fixture
def foreign() -> Generator[Callable[..., socket.socket]]:
    """Listens outside of every job."""
    opened: list[socket.socket] = []

    def listen(address: str | tuple[str, int], *, shares: bool = False) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
        opened.append(listener)
        if shares:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(address)
        listener.listen()
        return listener

    yield listen
    for listener in opened:
        listener.close()


def test_bytes_go_both_ways_to_ports_and_sockets_of_the_job(
    attempt: Attempt, reach: Reach, ports: tuple[int, int]
) -> None:
    reached = reach().start(kind="ports")
    targets = [{"port": ports[0]}, {"port": ports[1]}, {"path": str(attempt.run.job / "echo")}]
    for channel, target in enumerate(targets):
        assert reached.open(channel, **target) == ""
        reached.write(b"%d" % channel * (WINDOW // 2), channel=channel)
    for channel in range(3):
        reached.end_input(channel=channel)
    reached.read_until(lambda: all(reached.output.get(each, b"").endswith(b"bye") for each in range(3)))
    assert reached.output == {each: bytearray(b"%d" % each * (WINDOW // 2) + b"bye") for each in range(3)}


def test_a_connection_outlives_that_of_the_client(attempt: Attempt, reach: Reach, ports: tuple[int, int]) -> None:
    reached = reach().start(kind="ports")
    assert reached.open(0, port=ports[0]) == ""
    reached.write(b"before, ")
    reached.cut()
    reached.join()
    reached.write(b"after")
    reached.end_input()
    reached.read_until(lambda: reached.output[0].endswith(b"bye"))
    assert reached.text() == "before, afterbye"


def test_no_port_or_socket_of_others_is_reached(
    attempt: Attempt, reach: Reach, ports: tuple[int, int], tmp_path: Path, foreign: Callable[..., socket.socket]
) -> None:
    outside = foreign(("127.0.0.1", 0)).getsockname()[1]
    foreign(str(tmp_path / "outside"))
    foreign(str(attempt.run.job / "foreign"))
    (attempt.run.job / "link").symlink_to(tmp_path / "outside")
    reached = reach().start(kind="ports")
    nobody = "no process of this job listens on port {} of its loopback"
    assert reached.open(0, port=outside) == nobody.format(outside)
    assert reached.open(0, port=1) == nobody.format(1)
    assert reached.open(0, path="/run/docker.sock") == "/run/docker.sock is in none of the job's folders"
    assert reached.open(0, path=str(attempt.run.job / "link")) != ""
    path = attempt.run.job / "foreign"
    assert reached.open(0, path=str(path)) == f"no process of this job listens at {path}"
    assert reached.open(0, path=str(attempt.run.job / "ports")) == f"{attempt.run.job / 'ports'} is not a socket"


def test_a_port_that_the_job_shares_with_others_is_not_reached(
    attempt: Attempt, reach: Reach, foreign: Callable[..., socket.socket]
) -> None:
    outside = foreign(("127.0.0.1", 0), shares=True).getsockname()[1]
    text = ECHOES.replace(
        'create_server(("127.0.0.1", 0))', f'create_server(("127.0.0.1", {outside}), reuse_port=True)'
    )
    attempt.start(text)
    attempt.wait_for_file("ready-0")
    reached = reach().start(kind="ports")
    assert reached.open(0, port=outside) == f"no process of this job listens on port {outside} of its loopback"
    reached.cut()
