"""Programs that a user starts in the sandbox of a running attempt."""

import json
from pathlib import Path
import sys

from tests.worker.attempt import EACH_LAUNCH, Attempt
from tests.worker.programs import RUNS_FOREVER
from tests.worker.reaching import Reached

START = "warm"
SHOWS = """
import json, os, sys
names = ("RANK", "WORLD_SIZE", "MASTER_PORT", "TORCHYARD_RUN_DIR", "PATH")
own = {name: os.environ.get(name) for name in names}
print(json.dumps({"cwd": os.getcwd(), "executable": sys.executable, **own}))
"""


def started(attempt: Attempt, script: str = RUNS_FOREVER, *, world_size: int = 1) -> None:
    attempt.start(script, world_size=world_size)
    for rank in range(world_size):
        attempt.wait_for_file(f"ready-{rank}")


@EACH_LAUNCH
def test_a_program_gets_input_and_its_output_and_exit_code_come_back(attempt: Attempt) -> None:
    started(attempt)
    reached = Reached(attempt).start(["sh", "-c", "cat; echo problem >&2; exit 7"])
    reached.write(b"\0\xff\r\n" * 1000)
    reached.end_input()
    assert reached.exit_code() == 7
    assert reached.output == {0: b"\0\xff\r\n" * 1000, 1: b"problem\n"}


@EACH_LAUNCH
def test_a_program_has_folder_variables_and_python_of_its_rank(attempt: Attempt) -> None:
    started(attempt, world_size=2)
    reached = Reached(attempt).start(["python", "-c", SHOWS], rank=1)
    assert reached.exit_code() == 0, reached.text(1)
    found = json.loads(reached.text())
    assert found["RANK"] == "1"
    assert found["TORCHYARD_RUN_DIR"] == found["cwd"] == str(attempt.run.job)
    assert Path(found["executable"]) == Path(sys.executable)


def test_what_cannot_be_started_is_said(attempt: Attempt) -> None:
    started(attempt)
    assert Reached(attempt).start(["no-such-program"]).error() == (
        "there is no program no-such-program on PATH in the job's sandbox"
    )
    assert Reached(attempt).join().error() == "this has ended: nothing of it runs any more"
