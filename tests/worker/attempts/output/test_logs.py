"""The order in which the streams of one process are stored."""

import os
from pathlib import Path
import subprocess
import sys

import pytest

from store.output.facts import Batch
from torchyard.contract.attempts.rundir import ORDER_MARK, RunDir
from worker.attempts.output.logs import LogReader


@pytest.mark.parametrize("last", ["stdout", "stderr"])
def test_what_a_process_wrote_last_is_stored_last(tmp_path: Path, last: str) -> None:
    run = RunDir(tmp_path)
    run.create()
    for second, stream in enumerate(("stdout", "stderr")):
        path = run.log("rank-0", stream)
        path.write_text(f"{stream}\n")
        moment = 10 if stream == last else second
        os.utime(path, (moment, moment))
    batch = Batch(offsets={})
    LogReader(run.job, world_size=1).read(batch, {}, final=True)
    assert [new.stream for new in batch.lines][-1] == last
    assert len(batch.lines) == 2


WRITES = """
import logging, pathlib, sys
from torchyard.run import order
order.begin(pathlib.Path(sys.argv[1]))
print("out 1")
print("err 1", file=sys.stderr)
logging.warning("err 2")
print("out 2", end="")
print("err 3", file=sys.stderr)
print(" goes on")
print("out 3")
assert sys.stdout.buffer is sys.__stdout__.buffer and sys.stderr.encoding == sys.__stderr__.encoding
raise ValueError("the end")
"""


def read(run: RunDir, offsets: dict[str, int] | None = None) -> list[tuple[str, str]]:
    batch = Batch(offsets={})
    LogReader(run.job, world_size=1).read(batch, {} if offsets is None else offsets, final=True)
    return [(new.stream, line) for new in batch.lines for line in new.lines]


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = RunDir(tmp_path)
    made.create()
    return made


def test_lines_of_both_streams_are_in_the_order_in_which_python_wrote_them(run: RunDir) -> None:
    with run.log("rank-0", "stdout").open("ab") as out, run.log("rank-0", "stderr").open("ab") as err:
        command = [sys.executable, "-u", "-P", "-c", WRITES, str(run.log("rank-0", "order"))]
        subprocess.run(command, stdout=out, stderr=err, check=False)
    found = read(run)
    assert [line for _, line in found[:5]] == ["out 1", "err 1", "WARNING:root:err 2", "out 2 goes on", "err 3"]
    assert [line for _, line in found[5:7]] == ["out 3", "Traceback (most recent call last):"]
    assert found[-1] == ("stderr", "ValueError: the end")


def mark(run: RunDir, *marks: tuple[int, int]) -> None:
    with run.log("rank-0", "order").open("ab") as file:
        file.writelines(ORDER_MARK.pack(*each) for each in marks)


def test_the_order_goes_on_in_the_next_read(run: RunDir) -> None:
    out, err = run.log("rank-0", "stdout"), run.log("rank-0", "stderr")
    out.write_text("a\n")
    err.write_text("b\n")
    mark(run, (2, 0))
    reader, offsets, lines = LogReader(run.job, world_size=1), dict[str, int](), list[str]()
    for more in (None, (2, 2), (4, 4)):
        if more is not None:
            mark(run, more, (more[0] + 2, more[1]))
            out.write_text(f"{out.read_text()}c\n")
            err.write_text(f"{err.read_text()}d\n")
        batch = Batch(offsets={})
        reader.read(batch, offsets, final=False)
        lines += [line for new in batch.lines for line in new.lines]
    assert lines == ["a", "b", "c", "d", "c", "d"]


@pytest.mark.parametrize(
    "forged", [b"x", os.urandom(1000), ORDER_MARK.pack(5, 5) + ORDER_MARK.pack(-1, 0), ORDER_MARK.pack(1 << 62, 0)]
)
def test_a_forged_order_loses_no_line(run: RunDir, forged: bytes) -> None:
    run.log("rank-0", "stdout").write_text("a\nb\n")
    run.log("rank-0", "stderr").write_text("c\nd\n")
    run.log("rank-0", "order").write_bytes(forged)
    assert sorted(read(run)) == [("stderr", "c"), ("stderr", "d"), ("stdout", "a"), ("stdout", "b")]


def test_an_order_that_is_no_file_is_none(run: RunDir) -> None:
    run.log("rank-0", "stdout").write_text("a\n")
    run.log("rank-0", "stderr").write_text("b\n")
    os.mkfifo(run.log("rank-0", "order"))
    assert sorted(read(run)) == [("stderr", "b"), ("stdout", "a")]
