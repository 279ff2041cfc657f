"""Programs that a user starts in the sandbox of a running attempt."""

from collections.abc import Callable
import json
from pathlib import Path
import signal
import sys

import pytest

from tests.security.test_proc import NAMES_ANOTHER
from tests.worker.attempt import WARM_LAUNCH, Attempt, named_inside, wait_for
from tests.worker.programs import RUNS_FOREVER, SAVES_ON_SIGTERM
from tests.worker.reaching import Reached
from torchyard.contract.attempts.records import ProcessIdentity
from torchyard.contract.reach.channels import WINDOW
from torchyard.contract.reach.frames import Frame, Kind, with_number
from torchyard.contract.reach.orders import Terminal
from torchyard.contract.states import EndReason
from worker.host import process

START = "warm"
Reach = Callable[[], Reached]
SHOWS = """
import json, os, sys
names = ("RANK", "WORLD_SIZE", "MASTER_PORT", "TORCHYARD_RUN_DIR", "PATH")
own = {name: os.environ.get(name) for name in names}
print(json.dumps({"cwd": os.getcwd(), "executable": sys.executable, **own}))
"""
IGNORES_SIGHUP = """
import os, signal, time
signal.signal(signal.SIGHUP, signal.SIG_IGN)
reading, writing = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    for descriptor in (0, 1, 2): os.close(descriptor)
    os.write(writing, str(os.getpid()).encode())
    while True: time.sleep(1)
print(os.getpid(), os.read(reading, 100).decode(), flush=True)
"""
"""Starts a daemon, prints its own pid and the daemon's."""

READS_RAW = """
import os, select, sys, tty
select.select([0], [], [])
tty.setraw(0)
os.write(1, b"> ")
while b"\\x04" not in os.read(0, 100): pass
sys.exit(4)
"""
"""Does as bash does that starts slowly: it changes the terminal's mode once the end of its input has come."""
PRINTS_MUCH = f"yes | head -c {3 * WINDOW}; echo the end; touch $TORCHYARD_RUN_DIR/printed; cat; exit 5"


def started(attempt: Attempt, script: str = RUNS_FOREVER, *, world_size: int = 1) -> None:
    attempt.start(script, world_size=world_size)
    for rank in range(world_size):
        attempt.wait_for_file(f"ready-{rank}")


def pids_of(reached: Reached, attempt: Attempt) -> tuple[ProcessIdentity, ProcessIdentity]:
    """Returns the two processes whose pids the program prints first, as it knows them."""
    reached.read_until(lambda: b"\n" in reached.output[0])
    first, second = (named_inside(int(pid), attempt.supervisor) for pid in reached.text().split()[:2])
    return first, second


@WARM_LAUNCH
def test_a_program_gets_input_and_its_output_and_exit_code_come_back(attempt: Attempt, reach: Reach) -> None:
    started(attempt)
    reached = reach().start(["sh", "-c", "cat; echo problem >&2; exit 7"])
    reached.write(b"\0\xff\r\n" * 1000)
    reached.end_input()
    assert reached.exit_code() == 7
    assert reached.output == {0: b"\0\xff\r\n" * 1000, 1: b"problem\n"}


@WARM_LAUNCH
def test_a_program_has_folder_variables_and_python_of_its_rank(attempt: Attempt, reach: Reach) -> None:
    started(attempt, world_size=2)
    reached = reach().start(["python", "-c", SHOWS], rank=1)
    assert reached.exit_code() == 0, reached.text(1)
    found = json.loads(reached.text())
    assert found["RANK"] == "1"
    assert found["TORCHYARD_RUN_DIR"] == found["cwd"] == str(attempt.run.job)
    assert Path(found["executable"]) == Path(sys.executable)


def test_a_program_beside_ranks_with_gpus_names_its_threads_as_cuda_does(attempt: Attempt, reach: Reach) -> None:
    attempt.gpus = True
    started(attempt)
    reached = reach().start(["python", "-c", NAMES_ANOTHER])
    assert reached.exit_code() == 0, reached.text(1)
    assert reached.text() == "0\n"


def test_what_cannot_be_started_is_said(attempt: Attempt, reach: Reach) -> None:
    started(attempt)
    assert reach().start(["no-such-program"]).error() == (
        "there is no program no-such-program on PATH in the job's sandbox"
    )
    assert reach().join().error() == "this has ended: nothing of it runs any more"


def test_an_end_of_input_reaches_what_changes_the_terminals_mode_later(attempt: Attempt, reach: Reach) -> None:
    started(attempt)
    program = reach().start(["python", "-c", READS_RAW], terminal=Terminal())
    program.end_input()
    assert program.exit_code() == 4


def test_a_terminal_has_the_size_and_kind_of_the_users_own_and_takes_its_keys(attempt: Attempt, reach: Reach) -> None:
    started(attempt)
    shell = reach().start(["sh"], terminal=Terminal(rows=11, columns=77, kind="vt220"))
    shell.write(b"tty; stty size; sh -c 'echo on $TERM; exec sleep 600'\r")
    shell.read_until(lambda: "on vt220" in shell.text())
    assert "/dev/pts/0" in shell.text()
    assert "11 77" in shell.text()
    shell.send(Frame(Kind.RESIZE, content=Terminal(rows=1, columns=1).to_json().encode()))
    shell.write(b"\x03")
    shell.read_until(lambda: shell.text().partition("^C")[2].endswith(("# ", "$ ")))
    shell.write(b"stty size; exit 3\r")
    assert shell.exit_code() == 3
    assert "1 1\r\n" in shell.text()
    users = reach().start(terminal=Terminal())
    users.write(b"exit 4\r")
    assert users.exit_code() == 4


def test_a_signal_reaches_all_processes_of_the_program(attempt: Attempt, reach: Reach) -> None:
    started(attempt)
    reached = reach().start(["sh", "-c", "trap '' USR1; sleep 600 & echo begun; wait"])
    reached.read_until(lambda: "begun" in reached.text())
    reached.send(with_number(Kind.SIGNAL, 10), with_number(Kind.SIGNAL, 15))
    assert reached.exit_code() == -15


def test_a_client_that_is_cut_off_comes_again_and_misses_nothing(attempt: Attempt, reach: Reach) -> None:
    started(attempt)
    reached = reach().start(["sh", "-c", "cat; echo done >&2; exit 4"])
    sent = [bytes([65 + number]) * 200_000 for number in range(8)]
    for content in sent:
        reached.write(content)
        reached.read_until(lambda: len(reached.output[0]) > 0)
        reached.cut()
        reached.join()
    reached.end_input()
    assert reached.exit_code() == 4
    assert reached.output == {0: b"".join(sent), 1: b"done\n"}


def test_a_shell_goes_on_without_its_client_and_keeps_the_end_of_its_output(attempt: Attempt, reach: Reach) -> None:
    started(attempt)
    shell = reach().start(["sh", "-c", PRINTS_MUCH], terminal=Terminal())
    shell.cut()
    attempt.wait_for_file("printed")
    shell.join()
    shell.read_until(lambda: "the end" in shell.text())
    assert len(shell.output[0]) <= WINDOW
    (warning,) = shell.warnings
    assert "bytes of output are not shown" in warning
    shell.write(b"\x04")
    assert shell.exit_code() == 5


def test_a_client_that_ends_a_program_ends_all_that_it_has_started(attempt: Attempt, reach: Reach) -> None:
    started(attempt)
    reached = reach().start(["python", "-c", IGNORES_SIGHUP + "time.sleep(600)"])
    own, daemon = pids_of(reached, attempt)
    reached.send(Frame(Kind.CLOSE))
    reached.read_until(lambda: reached.last is not None)
    assert reached.last == with_number(Kind.EXIT, -signal.SIGKILL)
    reached.cut()
    wait_for(lambda: not any(map(process.is_alive, (own, daemon))), "the end of both")


def test_what_a_program_leaves_goes_on_until_the_attempt_ends(attempt: Attempt, reach: Reach) -> None:
    started(attempt, SAVES_ON_SIGTERM)
    left = reach().start(["python", "-c", IGNORES_SIGHUP])
    left.read_until(lambda: b"\n" in left.output[0])
    daemon = named_inside(int(left.text().split()[1]), attempt.supervisor)
    assert left.exit_code() == 0
    assert process.is_alive(daemon)
    shell = reach().start(["sh", "-c", "trap 'echo hangs up; exit 6' HUP; echo begun; read x"])
    shell.read_until(lambda: "begun" in shell.text())
    attempt.stop()
    shell.read_until(lambda: shell.warnings)
    assert shell.warnings == ["the job stops, and this ends with it"]
    shell.cut()
    report = attempt.report()
    assert (report.reason, report.exited_well) == (EndReason.CANCELLED, True)
    assert not process.is_alive(daemon)
    with pytest.raises(OSError, match="the attempt has ended"):
        reach().start(["true"])
