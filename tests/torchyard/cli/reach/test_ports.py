"""`forward` against a real door, and what listens in its job."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
import socket
import threading

import pytest

from tests.torchyard.cli.invocation import run_in_process, start_process
from tests.torchyard.cli.reach.test_programs import environment_of
from tests.torchyard.client.reaching.peer import Peer, peer
from torchyard.cli.reach.forwarding import loopback_of, wanted_of
from torchyard.contract.reach.orders import Target

MANY = 5 << 20


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """What echoes a connection to its end, then half of it again."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_echo_all, args=(listener,))
        thread.start()
        yield listener
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.fixture
def job(listener: socket.socket) -> Iterator[Peer]:
    with peer(listener) as other:
        yield other


def test_connections_go_to_what_listens_in_the_job_and_on_after_a_cut(job: Peer, listener: socket.socket) -> None:
    content = bytes(range(256)) * (MANY >> 8)
    with forwarding(job, listener.getsockname()[1]) as address, socket.create_connection(address) as idle:
        for _ in range(2):
            assert _echoed(address, content) == content
            job.cut()
        idle.sendall(b"still there")
        assert idle.recv(11, socket.MSG_WAITALL) == b"still there"


def test_what_listens_elsewhere_on_the_host_is_refused(job: Peer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as foreign, forwarding(job, foreign.getsockname()[1]) as address:
        assert _echoed(address, b"") == b""


def test_a_port_that_is_taken_is_named(job: Peer, listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    done = run_in_process(["forward", "job_1", f"6006:{port}"], environment_of(job))
    assert (done.returncode, done.stderr) == (
        1,
        f"error: port {port} of this machine cannot be used: Address already in use\n",
    )
    assert job.orders == []


@pytest.mark.parametrize("text", ["", "0", "65536", "x", "80:x", "80:", ":80", "-1", "８０"])
def test_what_is_no_port_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="port"):
        wanted_of(text)


def test_ports_and_sockets_are_read_with_and_without_a_port_of_this_machine() -> None:
    assert (wanted_of("80").target, wanted_of("80").port) == (Target(port=80), None)
    assert (wanted_of("80:8080").target, wanted_of("80:8080").port) == (Target(port=80), 8080)
    assert (wanted_of("./a.sock").target, wanted_of("./a.sock:80").port) == (Target(path="./a.sock"), 80)


def test_a_forward_has_the_name_of_loopback_that_the_service_does_not_use() -> None:
    assert loopback_of("http://localhost:8000") == "127.0.0.1"
    assert loopback_of("http://127.0.0.1:8000") == loopback_of("https://box:8000") == "localhost"


@contextmanager
def forwarding(job: Peer, port: int) -> Generator[tuple[str, int]]:
    """Yields the address of this machine that leads to a port of the job."""
    with start_process(["forward", "job_1", str(port)], environment_of(job)) as started:
        line = started.stdout.readline()
        host, _, local = line.split()[0].removeprefix("http://").partition(":")
        assert f"port {port} of a" in line
        yield host, int(local)


def _echoed(address: tuple[str, int], content: bytes) -> bytes:
    with socket.create_connection(address) as connection:
        writing = threading.Thread(target=_send_all, args=(connection, content))
        writing.start()
        back = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        writing.join()
        return back


def _send_all(connection: socket.socket, content: bytes) -> None:
    connection.sendall(content)
    connection.shutdown(socket.SHUT_WR)


def _echo_all(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_echo, args=(connection,)).start()


def _echo(connection: socket.socket) -> None:
    with connection:
        while content := connection.recv(1 << 16):
            connection.sendall(content)
