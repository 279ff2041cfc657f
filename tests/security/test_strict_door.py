"""Programs that a user starts in an attempt at the level `strict`, and the ports of such an attempt."""

from collections.abc import Generator
import json

import pytest

from tests.security.strict_host import FIRST_UID, StrictHost, strict_host
from tests.worker.reaching import Reached
from torchyard.contract.reach.orders import Terminal
from torchyard.contract.states import EndReason

SERVES = """
import os, pathlib, socket
run = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"])
assert "TORCHYARD_DOOR" not in os.environ
listener = socket.create_server(("127.0.0.1", 0))
(run / "ready").write_text(str(listener.getsockname()[1]))
while True:
    connection, _ = listener.accept()
    connection.sendall(connection.recv(100))
    connection.close()
"""
SHOWS = """
import json, os
names = ("RANK", "MINE", "SECRET", "TORCHYARD_SECRETS", "TORCHYARD_DOOR")
print(json.dumps([os.getuid(), os.getcwd(), *map(os.environ.get, names)]))
"""
ATTACKS = """
import ctypes, glob, json, os, pathlib, signal, socket
libc = ctypes.CDLL(None, use_errno=True)
run = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"]).parent
def tried(function, *arguments):
    try: return repr(function(*arguments))
    except OSError as error: return "refused"
def connect(path):
    with socket.socket(socket.AF_UNIX) as end: return end.connect(str(path))
names = {pid: open(f"/proc/{pid}/cmdline").read() for pid in filter(str.isdecimal, os.listdir("/proc"))}
(door,) = [int(pid) for pid, name in names.items() if name.startswith("torchyard:") and "door" in name]
taken = libc.syscall(438, os.pidfd_open(door), 3, 0)
print(json.dumps([
    tried(connect, run / "ctl" / "door"), tried(connect, run / "ctl" / "shown" / "door.sock"),
    tried((run / "ctl" / "door.key").read_bytes), tried(os.listdir, f"/proc/{door}/fd"),
    tried(open, f"/proc/{door}/mem"), "refused" if taken < 0 else "taken",
    "refused" if libc.ptrace(16, door, 0, 0) < 0 else "attached",
]))
"""


@pytest.fixture(scope="module")
def host(strict_isolation: None) -> Generator[StrictHost]:
    with strict_host() as host:
        yield host


def test_a_program_and_a_connection_are_inside_of_strict_isolation(host: StrictHost) -> None:
    attempt = host.prepared(SERVES, env={"TORCHYARD_RANK_ENV_MINE": "1"})
    attempt.start(secrets={"SECRET": "s3cret"})
    attempt.wait_for_file("ready")
    program = Reached.into(attempt.run).start(["python", "-c", SHOWS])
    assert program.exit_code() == 0, program.text(1)
    uid = host.state.uid_of(attempt.owner)
    assert uid >= FIRST_UID
    assert json.loads(program.text()) == [uid, str(attempt.run.job), "0", "1", "s3cret", None, None]
    shell = Reached.into(attempt.run).start(["sh", "-c", "tty; exit 3"], terminal=Terminal())
    assert shell.exit_code() == 3
    assert "/dev/pts/0" in shell.text()
    ports = Reached.into(attempt.run).start(kind="ports")
    assert ports.open(0, port=int((attempt.run.job / "ready").read_text())) == ""
    ports.write(b"hello")
    ports.read_until(lambda: ports.text() == "hello")
    attack = Reached.into(attempt.run).start(["python", "-c", ATTACKS])
    assert attack.exit_code() == 0, attack.text(1)
    assert json.loads(attack.text()) == ["refused"] * 7
    left = Reached.into(attempt.run).start(["sh", "-c", "nohup sleep 1000 >/dev/null 2>&1 & echo started"])
    assert left.exit_code() == 0
    attempt.stop(grace=60)
    assert attempt.report().reason is EndReason.CANCELLED
    assert attempt.processes() == []
    for each in (program, shell, ports, attack, left):
        each.cut()
